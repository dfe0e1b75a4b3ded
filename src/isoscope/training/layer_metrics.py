"""Measure a layer's hidden states during training, and detect collapse."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from isoscope._core.errors import DataWarning, InputError, MissingValueError, ShapeError
from isoscope.metrics.clusters import silhouette
from isoscope.metrics.cosine import mean_cosine
from isoscope.metrics.neighbors import two_nn
from isoscope.metrics.spectra import anisotropy, isoscore

AXES = 3
"""The number of anisotropy values: anisotropy_1 to anisotropy_3."""

MEASUREMENTS = (
    *(f"anisotropy_{k}" for k in range(1, AXES + 1)),
    *(f"anisotropy_{k}_centered" for k in range(1, AXES + 1)),
    "isoscore",
    "isoscore_unbiased",
    "mean_cosine",
    "two_nn",
    "silhouette",
)
"""The names of the measurements of a layer, in display order."""


def measure(
    rows: np.ndarray, labels: Any = None, *, groups: Any = None, layer: str = "", step: int | None = None
) -> dict[str, float]:
    """Return all `MEASUREMENTS` of one layer's states, with NaN for those that cannot be computed.

    States that are all equal, very few rows or a single class yield NaN and do not interrupt training. NaN or infinity
    in the states raises an error, because the model has diverged.

    Parameters
    ----------
    rows : array of shape (n, d)
        One row per example.
    labels : array-like of shape (n,), optional
        The class of each row, for the silhouette.
    groups : array-like of shape (n,), optional
        The text of each row, if rows are tokens; the unbiased IsoScore then compares only tokens of different texts.
    layer, step
        The origin of the states, for the error message if they are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> noise = np.random.default_rng(0).standard_normal((200, 16))
    >>> values = measure(noise, np.arange(200) % 2)
    >>> round(values["isoscore_unbiased"], 1), round(values["mean_cosine"], 1)
    (1.0, 0.0)
    >>> measure(np.ones((5, 4)))["isoscore"]
    nan
    """
    rows = np.asarray(rows)
    _check_finite_states(rows, layer, step)
    values = dict.fromkeys(MEASUREMENTS, math.nan)
    constant = _is_constant(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        axes = min(AXES, *rows.shape)
        for ending, center in (("", False), ("_centered", True)):
            shares = None if center and constant else _value_or_none(partial(anisotropy, rows, axes, center=center))
            if shares is not None:
                values |= {f"anisotropy_{k}{ending}": float(share) for k, share in enumerate(shares, 1)}
        singles: dict[str, Callable[[], Any]] = {"mean_cosine": partial(mean_cosine, rows)}
        if not constant:
            singles["isoscore"] = partial(isoscore, rows)
            singles["isoscore_unbiased"] = partial(isoscore, rows, unbiased=True, groups=groups)
            singles["two_nn"] = partial(two_nn, rows)
            if labels is not None:
                singles["silhouette"] = partial(silhouette, rows, labels)
        for name, compute in singles.items():
            value = _value_or_none(compute)
            values[name] = math.nan if value is None else float(value)
    return values


def _value_or_none(compute: Callable[[], Any]) -> Any:
    """Return the computed value, or None if it is undefined for these states."""
    try:
        return compute()
    except InputError:
        return None


def _is_constant(rows: np.ndarray) -> bool:
    """Return whether rows are equal up to rounding, such as the states of a first token that all examples share."""
    if not rows.size:
        return True
    eps = float(np.finfo(rows.dtype).eps) if rows.dtype == np.float64 else float(np.finfo(np.float32).eps)
    return bool(np.abs(rows - rows[0]).max() <= 8 * eps * np.abs(rows).max())


def _check_finite_states(rows: np.ndarray, layer: str, step: int | None) -> None:
    if rows.ndim != 2:
        raise ShapeError(f"the states of {layer or 'a layer'} have shape {rows.shape}: need shape (n, d)")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        when = "" if step is None else f" at step {step}"
        raise MissingValueError(
            f"{layer or 'the layer'}{when}: {len(bad)} of {len(rows)} rows of the probe contain NaN or infinity, "
            f"first in row {bad[0]}: training has diverged; lower the learning rate or the regularizer's weight, or "
            "train in bf16 instead of fp16"
        )


EVIDENCE = ("loss", "label_correlation")
"""What a history contains besides the measurements, to tell a collapse from learning: the loss of the task, and the
correlation of the leading direction with the labels of the probe."""


def label_correlation(rows: np.ndarray, labels: np.ndarray) -> float:
    """Return the correlation of the labels with the rows' positions along their leading direction, from 0 to 1.

    Labels of type float are grades: the result is the absolute correlation. Other labels are classes: it is the
    correlation ratio, adjusted for the number of classes, so that it is about 0 for labels that are unrelated to the
    rows. It is NaN if the rows or the labels are all equal, or if there are as many classes as rows.

    >>> grades = np.arange(20.0)
    >>> round(label_correlation(np.outer(grades, [1.0, -2.0, 0.5]), grades), 6)
    1.0
    """
    rows, labels = np.asarray(rows, np.float64), np.asarray(labels)
    classes, numbers = np.unique(labels, return_inverse=True)
    if _is_constant(rows) or len(classes) == 1:
        return math.nan
    along = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[0][:, 0]
    if labels.dtype.kind == "f":
        return float(abs(np.corrcoef(along, labels)[0, 1]))
    if len(classes) == len(rows):
        return math.nan
    means = np.bincount(numbers, along) / np.bincount(numbers)
    within = float(np.square(along - means[numbers]).sum()) / (len(rows) - len(classes))
    total = float(np.square(along - along.mean()).sum()) / (len(rows) - 1)
    return math.sqrt(max(0.0, 1 - within / total))


MIN_ROWS = 8
"""The minimum number of rows for a verdict: with 8, the unbiased IsoScore can tell 5 effective dimensions from 2."""


@dataclass(frozen=True)
class CollapseThresholds:
    """The thresholds of the collapse alarm; `make collapse-calibration` chooses those with a ratio or a correlation."""

    effective_dimensions: float = 2.0
    """With fewer effective dimensions, nearly all variance lies along one direction."""
    isoscore_ratio: float = 0.1
    """The maximum unbiased IsoScore, relative to that at the start."""
    spread_ratio: float = 0.001
    """The maximum of 1 − mean cosine, relative to that at the start."""
    silhouette: float = 0.25
    """The minimum silhouette of a layer that separates classes (Kaufman and Rousseeuw, 1990)."""
    label_correlation: float = 0.3
    """The minimum correlation of the leading direction with the labels in a model that learns."""
    loss_ratio: float = 0.9
    """The maximum loss of a model that learns, relative to the first loss."""


@dataclass(frozen=True)
class Collapse:
    """A collapsed layer, with the step and the reason."""

    layer: str
    step: int
    reason: str

    @property
    def message(self) -> str:
        """The warning message, with advice."""
        return (
            f"{self.layer} has collapsed by step {self.step}: {self.reason}. Try a lower learning rate, a longer "
            "warm-up, or a regularizer that raises isotropy"
        )


def effective_dimensions(isoscore: float, dimensions: float) -> float:
    """Return the participation ratio that corresponds to an IsoScore: 1 for IsoScore 0, and d for IsoScore 1.

    >>> effective_dimensions(0.5, 101)
    51.0
    """
    return isoscore * (dimensions - 1) + 1


def collapse_reason(
    first: Mapping[str, Any],
    now: Mapping[str, Any],
    first_loss: float = math.nan,
    thresholds: CollapseThresholds | None = None,
) -> str | None:
    """Return why a layer has collapsed, given its first and a later row of a history; None if it has not.

    A layer has collapsed if its states became equal. It may also have collapsed if 1 − mean cosine fell below 0.1% of
    its first value, or if fewer than 2 effective dimensions are left and the unbiased IsoScore fell below 10% of its
    first value. But a model that learns also needs few directions in its last layers, so further evidence decides:

    - With labels, it has not collapsed if the leading direction has a correlation of at least 0.3 with them, or if the
      silhouette of the classes is at least 0.25. With grades, the number of dimensions is no evidence of collapse,
      because a regression needs only one.
    - Without labels, it has not collapsed if the loss fell below 90% of `first_loss`. If the loss is not known either,
      the number of dimensions alone is no evidence of collapse.

    Examples
    --------
    >>> first = {"rows": 64, "dimensions": 768, "isoscore_unbiased": 0.1, "mean_cosine": 0.5, "silhouette": 0.0}
    >>> now = first | {"isoscore_unbiased": 0.0002, "label_correlation": 0.1}
    >>> collapse_reason(first, now)
    'its effective dimensions fell from 77.7 to 1.15 of 768'
    """
    thresholds = thresholds or CollapseThresholds()
    if now["rows"] < MIN_ROWS or math.isnan(first["isoscore_unbiased"]):
        return None
    if math.isnan(now["isoscore_unbiased"]):
        return f"its {now['rows']} states are all equal"
    dimensions = now["dimensions"]
    before, after = (effective_dimensions(row["isoscore_unbiased"], dimensions) for row in (first, now))
    is_flat = (
        after < thresholds.effective_dimensions <= before
        and now["isoscore_unbiased"] < thresholds.isoscore_ratio * first["isoscore_unbiased"]
    )
    is_narrow = 1 - now["mean_cosine"] < thresholds.spread_ratio * (1 - first["mean_cosine"])
    silhouette, correlation, loss = (now.get(name, math.nan) for name in ("silhouette", "label_correlation", "loss"))
    if math.isnan(silhouette) and not math.isnan(correlation):  # grades
        is_flat = False
    if not (is_flat or is_narrow):
        return None
    knows_loss = not (math.isnan(loss) or math.isnan(first_loss))
    if not (math.isnan(silhouette) and math.isnan(correlation)):
        learns = correlation >= thresholds.label_correlation or silhouette >= thresholds.silhouette
    else:
        learns = loss < thresholds.loss_ratio * first_loss if knows_loss else not is_narrow
    if learns:
        return None
    reason = (
        f"its effective dimensions fell from {before:.3g} to {after:.3g} of {dimensions}"
        if is_flat
        else f"its mean cosine rose from {first['mean_cosine']:.4f} to {now['mean_cosine']:.6f}"
    )
    return reason + (f", and the loss went from {first_loss:.3g} to {loss:.3g}" if knows_loss else "")


class CollapseDetector:
    """A detector that checks the rows of a history in order and reports each collapse once."""

    def __init__(self, thresholds: CollapseThresholds | None = None) -> None:
        self._thresholds = thresholds
        self._first: dict[str, Mapping[str, Any]] = {}
        self._first_loss = math.nan
        self._loss_step = 0
        self.found: dict[str, Collapse] = {}

    def look(self, rows: Iterable[Mapping[str, Any]]) -> list[Collapse]:
        """Return the layers that have collapsed in these rows and were not reported before."""
        new = []
        for row in rows:
            layer = row["layer"]
            if math.isnan(self._first_loss):
                self._first_loss, self._loss_step = row.get("loss", math.nan), row["step"]
            first = self._first.setdefault(layer, row)
            # The first loss cannot be compared with itself.
            first_loss = self._first_loss if row["step"] > self._loss_step else math.nan
            reason = None if layer in self.found else collapse_reason(first, row, first_loss, self._thresholds)
            if reason:
                self.found[layer] = Collapse(layer, row["step"], reason)
                new.append(self.found[layer])
        return new


def find_collapses(
    history: Iterable[Mapping[str, Any]], thresholds: CollapseThresholds | None = None
) -> list[Collapse]:
    """Return the collapsed layers of a history, each with the step at which it collapsed.

    Examples
    --------
    >>> find_collapses([])
    []
    """
    return CollapseDetector(thresholds).look(history)
