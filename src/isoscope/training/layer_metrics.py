"""Measurements of a layer in training, and the detection of collapse."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from isoscope._core.errors import DataWarning, InputError
from isoscope.metrics.clusters import silhouette
from isoscope.metrics.cosine import mean_cosine
from isoscope.metrics.neighbors import two_nn
from isoscope.metrics.spectra import anisotropy, isoscore

AXES = 3
"""How many of the strongest axes have their share measured."""

MEASUREMENTS = (
    *(f"anisotropy_{k}" for k in range(1, AXES + 1)),
    *(f"anisotropy_{k}_centred" for k in range(1, AXES + 1)),
    "isoscore",
    "isoscore_unbiased",
    "mean_cosine",
    "two_nn",
    "silhouette",
)
"""What is measured of a layer, in the order in which it is shown."""


def measure(
    rows: np.ndarray, labels: Any = None, *, groups: Any = None, layer: str = "", step: int | None = None
) -> dict[str, float]:
    """The shape of one layer's (n, d) states: a number for each of `MEASUREMENTS`, NaN for what cannot be had.

    While a model trains anything may happen: states that are all equal, a probe of three rows, one class. None of it
    ends the training. NaN or infinity among the states does, for then the model is broken.

    Parameters
    ----------
    rows : (n, d) array
        One row for each example of the probe.
    labels : (n,) labels, optional
        Each row's class, for the silhouette.
    groups : (n,) labels, optional
        The text of each row, where rows are tokens; the unbiased IsoScore then allows for their dependence.
    layer, step
        Where the states come from, for the message if they are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).standard_normal((200, 16))
    >>> found = measure(noise, np.arange(200) % 2)
    >>> round(found["isoscore_unbiased"], 1), round(found["mean_cosine"], 1)
    (1.0, 0.0)
    >>> measure(np.ones((5, 4)))["isoscore"]
    nan
    """
    rows = np.asarray(rows)
    _check_finite_states(rows, layer, step)
    found = dict.fromkeys(MEASUREMENTS, math.nan)
    constant = _is_constant(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        axes = min(AXES, *rows.shape)
        for ending, center in (("", False), ("_centred", True)):
            shares = None if center and constant else _value_or_none(partial(anisotropy, rows, axes, center=center))
            if shares is not None:
                found |= {f"anisotropy_{k}{ending}": float(share) for k, share in enumerate(shares, 1)}
        singles: dict[str, Callable[[], Any]] = {"mean_cosine": partial(mean_cosine, rows)}
        if not constant:
            singles["isoscore"] = partial(isoscore, rows)
            singles["isoscore_unbiased"] = partial(isoscore, rows, unbiased=True, groups=groups)
            singles["two_nn"] = partial(two_nn, rows)
            if labels is not None:
                singles["silhouette"] = partial(silhouette, rows, labels)
        for name, compute in singles.items():
            value = _value_or_none(compute)
            found[name] = math.nan if value is None else float(value)
    return found


def _value_or_none(compute: Callable[[], Any]) -> Any:
    """What comes out, or None if the states do not allow it."""
    try:
        return compute()
    except InputError:
        return None


def _is_constant(rows: np.ndarray) -> bool:
    """Whether rows differ by rounding at most, as the states of a first token do that is the same in every example."""
    if not rows.size:
        return True
    eps = float(np.finfo(rows.dtype).eps) if rows.dtype == np.float64 else float(np.finfo(np.float32).eps)
    return bool(np.abs(rows - rows[0]).max() <= 8 * eps * np.abs(rows).max())


def _check_finite_states(rows: np.ndarray, layer: str, step: int | None) -> None:
    if rows.ndim != 2:
        raise InputError(f"the states of {layer or 'a layer'} have shape {rows.shape}: need (n, d), one row an example")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        when = "" if step is None else f" at step {step}"
        raise InputError(
            f"{layer or 'the layer'}{when}: {len(bad)} of {len(rows)} rows of the probe have NaN or infinity, the "
            f"first is row {bad[0]}: training has diverged, lower the learning rate or the regulariser's weight, or "
            "train in bf16 rather than fp16"
        )


MIN_ROWS = 8
"""From so many rows on the unbiased IsoScore tells 5 effective dimensions from 2; with fewer none is judged."""

_MIN_EFFECTIVE_DIMENSIONS = 2.0  # effective dimensions, below which there is one direction and some dust
_MAX_ISOSCORE_RATIO = 0.1  # of the IsoScore at the start
_MAX_SPREAD_RATIO = 0.01  # of one minus the mean cosine at the start
_MIN_CLASS_SILHOUETTE = 0.25  # a silhouette below shows no structure (Kaufman and Rousseeuw, 1990)


@dataclass(frozen=True)
class Collapse:
    """A layer that has collapsed: since which step, and by which numbers."""

    layer: str
    step: int
    reason: str

    @property
    def message(self) -> str:
        """One line with what to try."""
        return (
            f"{self.layer} has collapsed by step {self.step}: {self.reason}. Try a lower learning rate, a longer "
            "warm-up, or a regulariser that keeps the space open"
        )


def effective_dimensions(isoscore: float, dimensions: float) -> float:
    """How many dimensions share the variance: 1 for an IsoScore of 0, all of them for 1.

    >>> effective_dimensions(0.5, 101)
    51.0
    """
    return isoscore * (dimensions - 1) + 1


def collapse_reason(first: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Why a layer counts as collapsed, given its first row of a history and a later one; None if it does not.

    It does if its states became equal; if their spread, one minus the mean cosine, fell under a hundredth of what it
    was; or if fewer than 2 effective dimensions are left and the unbiased IsoScore fell under a tenth. A layer that
    tells the classes apart (silhouette from 0.25 on) has not collapsed: a classifier's last layer needs few directions.

    Examples
    --------
    >>> first = {"rows": 64, "dimensions": 384, "isoscore_unbiased": 0.16, "mean_cosine": 0.61, "silhouette": 0.02}
    >>> collapse_reason(first, first | {"isoscore_unbiased": 0.1})
    >>> collapse_reason(first, first | {"isoscore_unbiased": 0.0005})
    'its effective dimensions fell from 62.3 to 1.19 of 384'
    """
    if now["rows"] < MIN_ROWS or math.isnan(first["isoscore_unbiased"]):
        return None
    if math.isnan(now["isoscore_unbiased"]):
        return f"its {now['rows']} states are all equal"
    if now["silhouette"] >= _MIN_CLASS_SILHOUETTE:
        return None
    dimensions = now["dimensions"]
    before, after = (effective_dimensions(row["isoscore_unbiased"], dimensions) for row in (first, now))
    if (
        after < _MIN_EFFECTIVE_DIMENSIONS <= before
        and now["isoscore_unbiased"] < _MAX_ISOSCORE_RATIO * first["isoscore_unbiased"]
    ):
        return f"its effective dimensions fell from {before:.3g} to {after:.3g} of {dimensions}"
    if 1 - now["mean_cosine"] < _MAX_SPREAD_RATIO * (1 - first["mean_cosine"]):
        return f"its mean cosine rose from {first['mean_cosine']:.4f} to {now['mean_cosine']:.6f}"
    return None


class CollapseDetector:
    """Looks at the rows of a history as they come, and finds each collapse once."""

    def __init__(self) -> None:
        self._first: dict[str, Mapping[str, Any]] = {}
        self.found: dict[str, Collapse] = {}

    def look(self, rows: Iterable[Mapping[str, Any]]) -> list[Collapse]:
        """The layers that have collapsed in these rows and had not before."""
        fresh = []
        for row in rows:
            layer = row["layer"]
            reason = None if layer in self.found else collapse_reason(self._first.setdefault(layer, row), row)
            if reason:
                self.found[layer] = Collapse(layer, row["step"], reason)
                fresh.append(self.found[layer])
        return fresh


def find_collapses(history: Iterable[Mapping[str, Any]]) -> list[Collapse]:
    """The layers of a history that have collapsed, each with the first step at which it had.

    Examples
    --------
    >>> find_collapses([])
    []
    """
    return CollapseDetector().look(history)
