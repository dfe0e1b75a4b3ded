"""A model and its tokenizer, ready to be fine-tuned for a task, and the task's rows as the model reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as chatter

from isoscope.errors import InputError
from isoscope.finetuning.tasks import Split, Task
from isoscope.stores.columns import plural

Row = dict[str, Any]


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
    place = _place(model)
    with quiet():
        try:
            tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
            config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise InputError(_unreachable(model, error)) from error
    notes = []
    if tokenizer.pad_token_id is None:
        token = tokenizer.eos_token or tokenizer.unk_token
        if token is None:
            raise InputError(
                f"{model} has no padding token, nor an end-of-text token to pad with: give its tokenizer one"
            )
        tokenizer.pad_token = token
        notes.append(f"the model has no padding token: texts are padded with {token}")
    room = getattr(config, "max_position_embeddings", None)
    limits = [max_length, tokenizer.model_max_length, room or max_length]
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert") and room:
        limits[-1] = room - 2  # its positions are counted from behind the padding token's
    return Reader(tokenizer, min(limits), tuple(notes))


def load_model(model: str, task: Task, reader: Reader) -> Any:
    """The model in float32 with a new head for the task; the head's numbers come from torch's seed."""
    names = dict(enumerate(task.labels)) or {0: "grade"}
    place = _place(model)
    with quiet():
        try:
            found = AutoModelForSequenceClassification.from_pretrained(
                place,
                num_labels=len(names),
                id2label=names,
                label2id={name: number for number, name in names.items()},
                problem_type="regression" if task.graded else "single_label_classification",
                ignore_mismatched_sizes=True,  # it may have a head for another task
                dtype=torch.float32,  # as it was stored, AdamW's small steps would be lost in 16 bits
                trust_remote_code=False,
            )
        except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
            raise InputError(_unreachable(model, error)) from error
    if found.config.pad_token_id is None:
        found.config.pad_token_id = reader.tokenizer.pad_token_id
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """Without the words and bars of transformers: what is worth saying is said by isoscope."""
    level, bars = chatter.get_verbosity(), chatter.is_progress_bar_enabled()
    chatter.set_verbosity_error()  # type: ignore[no-untyped-call]
    chatter.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        chatter.set_verbosity(level)
        if bars:
            chatter.enable_progress_bar()  # type: ignore[no-untyped-call]


def said_of(rows: int, of: int, cut: int, reader: Reader) -> list[str]:
    """What is worth knowing of how the rows were read."""
    notes = list(reader.notes)
    if rows < of:
        notes.append(f"learnt from {rows:,} of {of:,} rows, the same for every seed, drawn evenly from every class")
    if cut:
        notes.append(f"{plural(cut, 'text')} cut at {reader.max_length} tokens")
    return notes


def _place(model: str) -> str:
    """A folder if there is one, or else a name on the hub."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder)
    if folder.is_file():
        raise InputError(f"{model} is a file: name the folder of a model, or a model on the Hugging Face hub")
    if folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1 or os.sep == model[-1:]:
        raise InputError(f"{model} is not there: name the folder of a model, or a model on the Hugging Face hub")
    return model


def _unreachable(model: str, error: Exception) -> str:
    why = " ".join(str(error).split())
    if Path(model).expanduser().is_dir():
        return f"{model} cannot be fine-tuned for classes or grades: {why[:300]}"
    return (
        f"{model} is no folder here and could not be had from the Hugging Face hub: {why[:200]}; check the name and "
        "the network, or name a folder that holds the model"
    )
