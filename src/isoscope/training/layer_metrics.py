"""The shape of one layer's states in a few numbers, whatever the states are like."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
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
