"""Where a model lies, a folder or the hub, and what is said when it cannot be had."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers.utils import logging as chatter

from isoscope._core.errors import InputError

LOAD_ERRORS = (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)
"""What transformers raises where a model, its tokenizer or its configuration cannot be had."""


def resolve_model_path(model: str) -> str:
    """A folder if there is one, or else a name on the hub."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder)
    if folder.is_file():
        raise InputError(f"{model} is a file: name the folder of a model, or a model on the Hugging Face hub")
    if folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1 or os.sep == model[-1:]:
        raise InputError(f"{model} is not there: name the folder of a model, or a model on the Hugging Face hub")
    return model


def format_load_error(model: str, error: Exception, task: str) -> str:
    """Why a model cannot do a task, in a line: what is wrong with its folder, or how to do without the hub."""
    why = _shorten_error(error)
    if Path(model).expanduser().is_dir():
        return f"{model} cannot be {task}: {why}"
    return (
        f"{model} is no folder here and could not be had from the Hugging Face hub: {why}; check the name and "
        "the network, or name a folder that holds the model"
    )


def _shorten_error(error: Exception) -> str:
    """The first sentences of an error, up to 200 characters or so; none is cut in the middle."""
    words, sentences = " ".join(str(error).split()), 0
    while sentences >= 0 and (end := words.find(". ", sentences)) >= 0 and end < 200:
        sentences = end + 1
    return (words[:sentences] if sentences else words[:200]).rstrip(".")


def longest_input(config: Any, tokenizer: Any) -> int | None:
    """How many tokens a model can read at once, special ones among them; None if nothing says so."""
    room = getattr(config, "max_position_embeddings", None)
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert") and room:
        room -= 2  # its positions are counted from behind the padding token's
    limits = [limit for limit in (room, tokenizer.model_max_length) if limit and 0 < limit < 10**9]
    return int(min(limits)) if limits else None


@contextmanager
def mute_transformers() -> Iterator[None]:
    """Without the words and bars of transformers: what is worth saying is said by isoscope."""
    level, bars = chatter.get_verbosity(), chatter.is_progress_bar_enabled()
    chatter.set_verbosity_error()  # type: ignore[no-untyped-call]
    chatter.disable_progress_bar()  # type: ignore[no-untyped-call]
    hub = logging.getLogger("huggingface_hub")
    hub_level = hub.level
    hub.setLevel(logging.CRITICAL)  # it tells of each of its attempts to reach the hub
    try:
        yield
    finally:
        hub.setLevel(hub_level)
        chatter.set_verbosity(level)
        if bars:
            chatter.enable_progress_bar()  # type: ignore[no-untyped-call]
