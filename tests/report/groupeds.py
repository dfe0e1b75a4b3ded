"""Grouped audits for tests: real ones of small datasets, and ones with given numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

import isoscope
from isoscope.auditing.audit import Audit
from isoscope.auditing.finding import Finding, Range
from isoscope.auditing.grouped import GroupedAudit

TOKENS = ("[CLS]", "swim", "##ming", "1984", ",", "the", "a", "of")


@cache
def layered(layers: int = 3, seed: int = 0, source: str = "model") -> GroupedAudit:
    """Tokens of a few layers that become more similar from layer to layer."""
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((200 * layers, 8))
    layer = np.repeat(np.arange(layers), 200)
    made = isoscope.audit(
        rows + 0.4 * layer[:, None],
        by=layer,
        types=np.resize(TOKENS, 200 * layers),
        labels=np.resize(["first", "second", "third"], 200 * layers),
        text=[f"context {i}" for i in range(200 * layers)],
    )
    return replace(made, source=source, by="layer")


@cache
def named(source: str = "words", names: tuple[str, ...] = ("sport", "news", "a < b")) -> GroupedAudit:
    """Groups without an order."""
    rows = np.random.default_rng(1).standard_normal((200 * len(names), 8))
    label = np.repeat(np.asarray(names), 200)
    rows[label == names[0]] += 1
    return replace(isoscope.audit(rows, by=label), source=source, by="label")


@cache
def _bare() -> Audit:
    return replace(isoscope.audit(np.random.default_rng(2).standard_normal((100, 4))), findings=[], pictures=None)


def told(
    values: Sequence[float],
    spread: float | None = 0.001,
    *,
    names: Sequence[str] | None = None,
    by: str = "layer",
    finding: str = "mean_cosine",
    form: str = "number",
) -> GroupedAudit:
    """Groups with one finding of these values, with intervals of ± `spread`; NaN marks a group without it."""
    judged = Range.lower_is_better(0.3, 0.6, "a test", 0.0)

    def of(value: float) -> Audit:
        ends = (None, None) if spread is None else (value - spread, value + spread)
        found = Finding(finding, finding, value, *ends, judged, "Rows look alike: a test.", "", 100, form)
        return replace(_bare(), findings=[] if math.isnan(value) else [found])

    called = [str(i) for i in range(len(values))] if names is None else list(names)
    return GroupedAudit(
        source="told",
        by=by,
        groups={name: of(value) for name, value in zip(called, values, strict=True)},
        values={name: i if names is None else name for i, name in enumerate(called)},
        ordered=names is None,
        skipped={},
        left_out=0,
        settings=_bare().settings,
        version="1",
    )
