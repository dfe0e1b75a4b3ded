"""Resolve a model's folder or Hub name, and explain loading errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.utils import logging as chatter

from isoscope._core.errors import NotFoundError
from isoscope._io.files import expand_user

LOAD_ERRORS = (Exception,)
"""The exceptions of a model, tokenizer or configuration that cannot be loaded: damaged files cause any exception in
transformers, and tokenizers raises `Exception` itself."""
_PICKLE = (
    "its weights file is a pickle with objects other than tensors, which could run code: need the weights as "
    "model.safetensors"
)


def resolve_model_path(model: str) -> str:
    """Return the path of a local folder, or else the name of a model on the Hugging Face Hub."""
    folder = expand_user(model)
    if folder.is_dir():
        return str(folder)
    if folder.is_file():
        raise NotFoundError(f"{model} is a file: pass a model folder, or a model name on the Hugging Face Hub")
    if folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1 or os.sep == model[-1:]:
        raise NotFoundError(f"{model} does not exist: pass a model folder, or a model name on the Hugging Face Hub")
    return model


def format_load_error(model: str, error: Exception, task: str) -> str:
    """Return a one-line message for a model that cannot be loaded, with the reason and what to do."""
    why = shorten_load_error(error)
    if expand_user(model).is_dir():
        return f"{model} cannot be {task}: {why}"
    return (
        f"{model} is not a local folder and could not be loaded from the Hugging Face Hub: {why}; check the name and "
        "the network, or pass a folder that contains the model"
    )


def shorten_load_error(error: Exception) -> str:
    """Return the first complete sentences of an error message, at most about 200 characters."""
    if isinstance(error, MemoryError):
        raise error
    if _is_rejected_pickle(error):  # torch's message advises to load the file nevertheless
        return _PICKLE
    words, sentences = " ".join(str(error).split()), 0
    while sentences >= 0 and (end := words.find(". ", sentences)) >= 0 and end < 200:
        sentences = end + 1
    return (words[:sentences] if sentences else words[:200]).rstrip(".") or type(error).__name__


def _is_rejected_pickle(error: BaseException | None) -> bool:
    while error is not None:
        if "weights only load failed" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def longest_input(config: Any, tokenizer: Any) -> int | None:
    """Return the maximum number of input tokens of a model, including special tokens; None if it is unknown."""
    room = getattr(config, "max_position_embeddings", None)
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert") and room:
        room -= 2  # the positions start after that of the padding token
    limits = [limit for limit in (room, tokenizer.model_max_length) if limit and 0 < limit < 10**9]
    return int(min(limits)) if limits else None


@contextmanager
def mute_transformers() -> Iterator[None]:
    """Silence the log messages and progress bars of transformers."""
    level, bars = chatter.get_verbosity(), chatter.is_progress_bar_enabled()
    chatter.set_verbosity_error()  # type: ignore[no-untyped-call]
    chatter.disable_progress_bar()  # type: ignore[no-untyped-call]
    hub = logging.getLogger("huggingface_hub")
    hub_level = hub.level
    hub.setLevel(logging.CRITICAL)  # otherwise it logs every attempt to reach the hub
    try:
        yield
    finally:
        hub.setLevel(hub_level)
        chatter.set_verbosity(level)
        if bars:
            chatter.enable_progress_bar()  # type: ignore[no-untyped-call]
