"""Apply a fitted repair with NumPy alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import asarray_like, take
from isoscope.transforms.persistence import CHAIN, read, reraise_as_input_error, split_steps

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


def subtract(xp: Any, X: Array, parts: Iterable[np.ndarray], rows: np.ndarray | None = None) -> Array:
    """X without each part, or without these rows of it, one part after the other."""
    for part in parts:
        held = asarray_like(xp, X, part, X.dtype)
        X = X - (held if rows is None else take(xp, held, rows))
    return X


def split_float32(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means as a sum of two float32 arrays: subtracted one after the other, no digit of a large mean is lost."""
    high = to_float32(means)
    return high, to_float32(means - high)


def to_float32(values: np.ndarray) -> np.ndarray:
    """Values as float32."""
    return values.astype(np.float32)


class PlainRepair:
    """What a command needs of a saved repair: to repair arrays, bit for bit as the class itself would."""

    def __init__(self, folder: str | os.PathLike[str], name: str, steps: list[_Step], dimensions: int) -> None:
        self.folder, self.name, self.steps, self.n_features_in_ = folder, name, steps, dimensions

    def transform(self, X: np.ndarray) -> np.ndarray:
        """The repaired vectors, in the precision of X."""
        kind = X.dtype
        X = X if kind.itemsize >= 4 else X.astype(np.float32)
        for step in self.steps:
            X = step(X)
        return X.astype(kind, copy=False)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it again, as it was read."""
        shutil.copytree(self.folder, folder)


class _Step:
    """One affine repair."""

    def __init__(self, kind: str, tensors: dict[str, np.ndarray]) -> None:
        self.kind, self.tensors = kind, tensors

    @cached_property
    def _float32_arrays(self) -> dict[str, Any]:
        held: dict[str, Any] = {name: to_float32(values) for name, values in self.tensors.items()}
        return held | {"mean_": split_float32(self.tensors["mean_"])}

    @property
    def _wide(self) -> dict[str, Any]:
        return {**self.tensors, "mean_": (self.tensors["mean_"],)}

    def __call__(self, X: np.ndarray) -> np.ndarray:
        held: dict[str, Any] = self._float32_arrays if X.dtype == np.float32 else self._wide
        centred: np.ndarray = subtract(np, X, held["mean_"])
        if self.kind == "Standardize":
            return np.asarray(centred / held["scale_"])
        if self.kind == "AllButTheTop":
            V = held["components_"]
            return np.asarray(centred - (centred @ V.T) @ V)
        return np.asarray(centred @ held["matrix_"]) if self.kind == "Whiten" else centred


_KINDS = {"Center", "Standardize", "AllButTheTop", "Whiten"}


def load_plain(folder: str | os.PathLike[str]) -> PlainRepair | None:
    """A saved repair whose steps are all affine; None if one treats clusters apart. Refused like any other if bad."""
    config, tensors = read(folder)
    with reraise_as_input_error(folder):
        parts = split_steps(config, tensors) if config["class"] == CHAIN else [(config, tensors)]
        if not {about["class"] for about, _ in parts} <= _KINDS:
            return None
        steps = [_Step(about["class"], held) for about, held in parts]
        return PlainRepair(folder, config["class"], steps, int(config["dimensions"]))
