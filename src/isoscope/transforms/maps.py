"""Formulas of affine repairs, and saved repairs that are applied without the slow import of scikit-learn."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import asarray_like, take
from isoscope.transforms.persistence import CHAIN, read, reraise_as_input_error, split_steps

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


def subtract(xp: Any, X: Array, parts: Iterable[np.ndarray], rows: np.ndarray | None = None) -> Array:
    """Subtract each part from X, one after another.

    If `rows` is given, row `rows[i]` of each part is subtracted from row i of X.
    """
    given = X
    for part in parts:
        values = asarray_like(xp, X, part, X.dtype)
        values = values if rows is None else take(xp, values, rows)
        if X is given or not isinstance(X, np.ndarray):
            X = X - values
        else:
            X -= values
    return X


def _remove_components(centered: Array, get: Callable[[str], Array]) -> Array:
    V = get("components_")
    return centered - (centered @ V.T) @ V


AFFINE_MAPS: dict[str, Callable[[Array, Callable[[str], Array]], Array]] = {
    "Center": lambda centered, get: centered,
    "Standardize": lambda centered, get: centered / get("scale_"),
    "AllButTheTop": _remove_components,
    "Whiten": lambda centered, get: centered @ get("matrix_"),
}
"""The formula of each affine repair, applied to centered vectors; the second argument looks up a fitted array."""


def split_float32(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split means into two float32 arrays; subtracting both keeps all digits of a large mean."""
    high = to_float32(means)
    return high, to_float32(means - high)


def to_float32(values: np.ndarray) -> np.ndarray:
    """Return values as float32."""
    return values.astype(np.float32)


def keep_zero_rows(xp: Any, X: Array, repaired: Array) -> Array:
    """Return the repaired vectors, but keep the zero rows of X at zero, because they have no direction to repair."""
    zero = ~xp.any(X != 0, axis=1)
    if repaired is X or not xp.any(zero):
        return repaired
    return xp.where(zero[:, None], xp.zeros_like(repaired), repaired)


class PlainRepair:
    """A saved affine repair that needs only NumPy; its results are bit-identical to those of the scikit-learn class."""

    def __init__(self, folder: str | os.PathLike[str], name: str, steps: list[_Step], dimensions: int) -> None:
        self.folder, self.name, self.steps, self.n_features_in_ = folder, name, steps, dimensions

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return the repaired vectors, in the dtype of X."""
        repaired = X if X.dtype.itemsize >= 4 else X.astype(np.float32)
        for step in self.steps:
            repaired = step(repaired)
        return np.asarray(keep_zero_rows(np, X, repaired)).astype(X.dtype, copy=False)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Copy the files of the saved repair to a folder."""
        shutil.copytree(self.folder, folder)


class _Step:
    """One affine repair of a saved sequence."""

    def __init__(self, kind: str, tensors: dict[str, np.ndarray]) -> None:
        self.map, self.tensors = AFFINE_MAPS[kind], tensors

    @cached_property
    def _float32_tensors(self) -> dict[str, np.ndarray]:
        return {name: to_float32(values) for name, values in self.tensors.items()}

    @cached_property
    def _float32_mean(self) -> tuple[np.ndarray, np.ndarray]:
        return split_float32(self.tensors["mean_"])

    def __call__(self, X: np.ndarray) -> np.ndarray:
        narrow = X.dtype == np.float32
        means = self._float32_mean if narrow else (self.tensors["mean_"],)
        tensors = self._float32_tensors if narrow else self.tensors
        return np.asarray(self.map(subtract(np, X, means), tensors.__getitem__))


def load_plain(folder: str | os.PathLike[str]) -> PlainRepair | None:
    """Load a saved repair whose steps are all affine; return None if a step treats clusters separately."""
    config, tensors = read(folder)
    with reraise_as_input_error(folder):
        parts = split_steps(config, tensors) if config["class"] == CHAIN else [(config, tensors)]
        if not all(about["class"] in AFFINE_MAPS for about, _ in parts):
            return None
        steps = [_Step(about["class"], values) for about, values in parts]
        return PlainRepair(folder, config["class"], steps, int(config["dimensions"]))
