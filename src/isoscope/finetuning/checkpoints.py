"""Find, verify and restore the checkpoints of an interrupted run."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from isoscope._core.errors import FileFormatError, InputError
from isoscope._io.files import atomic_replace
from isoscope._io.json import check_type, parse_json
from isoscope.training.loading import shorten_load_error

_HASHES = "weights.json"
"""The file in a checkpoint with a hash of each weight."""
_STATE, _STATE_HASH = "trainer_state.json", "trainer_state.hash"
"""The file with the state of the Trainer, and the file with its hash."""


def last_checkpoint(folder: Path) -> Path | None:
    """Return the latest complete checkpoint, or None; remove incomplete and damaged checkpoints."""
    whole = []
    for path in folder.glob("checkpoint-*"):
        try:
            step = parse_json((path / _STATE).read_text(encoding="utf-8"))["global_step"]
            _check_files(path)
            whole.append((check_type(step, int, "global_step"), path))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            shutil.rmtree(path, ignore_errors=True)
    return max(whole)[1] if whole else None


def _check_files(checkpoint: Path) -> None:
    """Raise an error if a file is truncated, for example because the disk was full or the power failed."""
    for path in checkpoint.glob("*.safetensors"):
        with safe_open(path, "pt"):
            pass
    torn = [path for path in checkpoint.glob("*.pt*") if not zipfile.is_zipfile(path)]
    if torn:
        raise ValueError(torn)
    recorded = checkpoint / _STATE_HASH
    if recorded.exists() and recorded.read_text(encoding="utf-8") != _hash_state(checkpoint):
        raise ValueError(recorded)


def remove_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a finished seed."""
    for path in folder.glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)


def record_weights(model: torch.nn.Module, checkpoint: Path) -> None:
    """Write a hash of each weight into a checkpoint, so that `restore_weights` can verify it."""
    with atomic_replace(checkpoint / _HASHES) as temporary:
        temporary.write_text(json.dumps(_hash_weights(model), indent=2) + "\n", encoding="utf-8")


def record_state(checkpoint: Path) -> None:
    """Write a hash of the Trainer's state into a checkpoint, so that `last_checkpoint` can verify it."""
    with atomic_replace(checkpoint / _STATE_HASH) as temporary:
        temporary.write_text(_hash_state(checkpoint), encoding="utf-8")


def _hash_state(checkpoint: Path) -> str:
    return hashlib.blake2b((checkpoint / _STATE).read_bytes(), digest_size=16).hexdigest()


def restore_weights(model: Any, checkpoint: Path) -> None:
    """Load the weights of a checkpoint into a model, and raise an error unless all have their saved values.

    A checkpoint contains the names of the model's original file, such as ``LayerNorm.gamma``, which may differ from
    those of the model's parameters. Loading it like any other model translates them; the Trainer alone does not.
    """
    with torch.random.fork_rng([]), explain_damage(checkpoint):
        saved, report = type(model).from_pretrained(
            checkpoint, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
        )
    model.load_state_dict(saved.state_dict())
    wrong = sorted(report["missing_keys"])
    if (checkpoint / _HASHES).exists():
        with explain_damage(checkpoint):
            hashes = dict(parse_json((checkpoint / _HASHES).read_text(encoding="utf-8")))
        restored = _hash_weights(model)
        wrong = sorted(name for name in hashes.keys() | restored.keys() if hashes.get(name) != restored.get(name))
    if wrong:
        raise FileFormatError(
            f"{checkpoint} does not restore {len(wrong)} of the {len(model.state_dict())} weights, such as {wrong[0]}: "
            "remove this folder to train the seed from the start"
        )


@contextmanager
def explain_damage(checkpoint: str | Path | None) -> Iterator[None]:
    """Convert any error while a checkpoint is read into a `FileFormatError` that names it."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # damaged files cause any exception in transformers and torch
        raise FileFormatError(
            f"{checkpoint} cannot be resumed ({shorten_load_error(error)}): remove this folder to train the seed from "
            "the start"
        ) from error


def _hash_weights(model: torch.nn.Module) -> dict[str, str]:
    """Return a hash of the shape and the bytes of each weight by name."""
    hashes = {}
    for name, tensor in model.state_dict().items():
        content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest = hashlib.blake2b(repr((tensor.dtype, tuple(tensor.shape))).encode(), digest_size=16)
        digest.update(content.numpy())
        hashes[name] = digest.hexdigest()
    return hashes
