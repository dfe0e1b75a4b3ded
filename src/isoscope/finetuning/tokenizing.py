"""Load a model and its tokenizer for fine-tuning, and tokenize the rows of a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from isoscope._core.errors import FileFormatError, NotFoundError, ParameterError, plural
from isoscope.training.layers import has_causal_config
from isoscope.training.loading import (
    LOAD_ERRORS,
    format_load_error,
    longest_input,
    mute_transformers,
    resolve_model_path,
)

if TYPE_CHECKING:
    from isoscope.finetuning.task_data import Split, Task

Row = dict[str, Any]

_TASK = "fine-tuned for classification or regression"


@dataclass(frozen=True)
class Reader:
    """A tokenizer with a padding token, and the maximum length of a text."""

    tokenizer: Any
    max_length: int
    notes: tuple[str, ...]
    is_causal: bool = False
    """Whether a token of the model attends only to earlier tokens."""

    @property
    def pool(self) -> str:
        """The token that represents a text: "cls" if the model has such a token and is not causal, else "last"."""
        return "cls" if self.tokenizer.cls_token_id is not None and not self.is_causal else "last"

    def read(self, split: Split) -> tuple[list[Row], int]:
        """Return the tokenized rows without padding, and the number of truncated texts."""
        pairs = () if split.pairs is None else (split.pairs,)
        encoded = self.tokenizer(split.texts, *pairs, truncation=True, max_length=self.max_length)
        special = set(self.tokenizer.all_special_ids)
        if all(special.issuperset(ids) for ids in encoded["input_ids"]):  # happens if the tokenizer's files are missing
            raise NotFoundError(
                f"the tokenizer of {self.tokenizer.name_or_path} recognizes none of the words in the texts: its files, "
                "such as tokenizer.json, may be missing; pass a folder that contains them"
            )
        truncated = sum(bool(each.overflowing) for each in encoded.encodings or ())
        labels = split.labels.tolist()
        rows = [{name: encoded[name][i] for name in encoded} | {"labels": labels[i]} for i in range(len(labels))]
        return rows, truncated


def load_reader(model: str, max_length: int) -> Reader:
    """Return the model's tokenizer; if it has no padding token, it pads with its end-of-text token."""
    place = resolve_model_path(model)
    with mute_transformers():
        try:
            tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
            config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        except LOAD_ERRORS as error:
            raise FileFormatError(format_load_error(model, error, _TASK)) from error
    notes = []
    if tokenizer.pad_token_id is None:
        token = tokenizer.eos_token or tokenizer.unk_token
        if token is None:
            raise ParameterError(
                f"{model} has neither a padding token nor an end-of-text token: add one to its tokenizer"
            )
        tokenizer.pad_token = token
        notes.append(f"the model has no padding token: texts are padded with {token}")
    limit = longest_input(config, tokenizer) or max_length
    return Reader(tokenizer, min(max_length, limit), tuple(notes), has_causal_config(config))


def load_model(model: str, task: Task, reader: Reader) -> Any:
    """Return the model in float32 with a new head for the task; torch's seed determines the weights of the head."""
    names = dict(enumerate(task.labels)) or {0: "grade"}
    place = resolve_model_path(model)
    with mute_transformers():
        try:
            loaded = AutoModelForSequenceClassification.from_pretrained(
                place,
                num_labels=len(names),
                id2label=names,
                label2id={name: number for number, name in names.items()},
                problem_type="regression" if task.is_graded else "single_label_classification",
                ignore_mismatched_sizes=True,  # the model may have a head for another task
                dtype=torch.float32,  # 16 bits would lose AdamW's small steps
                trust_remote_code=False,
            )
        except LOAD_ERRORS as error:
            raise FileFormatError(format_load_error(model, error, _TASK)) from error
    if loaded.config.pad_token_id is None:
        loaded.config.pad_token_id = reader.tokenizer.pad_token_id
    return loaded


def describe_rows(rows: int, total: int, truncated: int, reader: Reader, *, graded: bool) -> list[str]:
    """Return notes on unused rows, truncated texts and the padding token."""
    notes = list(reader.notes)
    if rows < total:
        sample = "a random sample" if graded else "a sample stratified by class"
        notes.append(f"trained on {rows:,} of {total:,} rows: {sample}, the same for every seed")
    if truncated:
        notes.append(f"{plural(truncated, 'text')} truncated to {reader.max_length} tokens")
    return notes
