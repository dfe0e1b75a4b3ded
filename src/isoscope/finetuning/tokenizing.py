"""A model and its tokenizer, ready to be fine-tuned for a task, and the task's rows as the model reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from isoscope._core.errors import InputError, plural
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

_TASK = "fine-tuned for classes or grades"


@dataclass(frozen=True)
class Reader:
    """A tokenizer that can pad, and how many tokens are read of a text."""

    tokenizer: Any
    max_length: int
    notes: tuple[str, ...]

    @property
    def pool(self) -> str:
        """Which token stands for a text: the first where the model was taught so, or else the last."""
        return "cls" if self.tokenizer.cls_token_id is not None else "last"

    def read(self, split: Split) -> tuple[list[Row], int]:
        """Rows as a model takes them, unpadded, and how many texts had to be cut."""
        pairs = () if split.pairs is None else (split.pairs,)
        read = self.tokenizer(split.texts, *pairs, truncation=True, max_length=self.max_length)
        special = set(self.tokenizer.all_special_ids)
        if all(special.issuperset(ids) for ids in read["input_ids"]):  # what one without its files is made of
            raise InputError(
                f"the tokenizer of {self.tokenizer.name_or_path} knows no word of the texts: it may lack its files, "
                "such as tokenizer.json; name a folder that holds them"
            )
        cut = sum(bool(each.overflowing) for each in read.encodings or ())
        labels = split.labels.tolist()
        rows = [{name: read[name][i] for name in read} | {"labels": labels[i]} for i in range(len(labels))]
        return rows, cut


def load_reader(model: str, max_length: int) -> Reader:
    """The model's tokenizer; one without a padding token gets its end-of-text token for that."""
    place = resolve_model_path(model)
    with mute_transformers():
        try:
            tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
            config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        except LOAD_ERRORS as error:
            raise InputError(format_load_error(model, error, _TASK)) from error
    notes = []
    if tokenizer.pad_token_id is None:
        token = tokenizer.eos_token or tokenizer.unk_token
        if token is None:
            raise InputError(
                f"{model} has no padding token, nor an end-of-text token to pad with: give its tokenizer one"
            )
        tokenizer.pad_token = token
        notes.append(f"the model has no padding token: texts are padded with {token}")
    limit = longest_input(config, tokenizer) or max_length
    return Reader(tokenizer, min(max_length, limit), tuple(notes))


def load_model(model: str, task: Task, reader: Reader) -> Any:
    """The model in float32 with a new head for the task; the head's numbers come from torch's seed."""
    names = dict(enumerate(task.labels)) or {0: "grade"}
    place = resolve_model_path(model)
    with mute_transformers():
        try:
            found = AutoModelForSequenceClassification.from_pretrained(
                place,
                num_labels=len(names),
                id2label=names,
                label2id={name: number for number, name in names.items()},
                problem_type="regression" if task.is_graded else "single_label_classification",
                ignore_mismatched_sizes=True,  # it may have a head for another task
                dtype=torch.float32,  # as it was stored, AdamW's small steps would be lost in 16 bits
                trust_remote_code=False,
            )
        except LOAD_ERRORS as error:
            raise InputError(format_load_error(model, error, _TASK)) from error
    if found.config.pad_token_id is None:
        found.config.pad_token_id = reader.tokenizer.pad_token_id
    return found


def describe_rows(rows: int, of: int, cut: int, reader: Reader) -> list[str]:
    """What is worth knowing of how the rows were read."""
    notes = list(reader.notes)
    if rows < of:
        notes.append(f"learnt from {rows:,} of {of:,} rows, the same for every seed, drawn evenly from every class")
    if cut:
        notes.append(f"{plural(cut, 'text')} cut at {reader.max_length} tokens")
    return notes
