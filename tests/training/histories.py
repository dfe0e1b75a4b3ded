"""Histories as training produces them, made without training."""

from __future__ import annotations

import math

import numpy as np

from isoscope.training.history import History
from isoscope.training.layer_metrics import MEASUREMENTS


def made(layers: int = 3, steps=(0, 10, 20, 30), seed: int = 0, end: float = 0.5, **more) -> History:
    """anisotropy_1 of the last layer rises from 0.2 to `end`; layer 0 is flat, as [CLS] is."""
    history = History()
    rng = np.random.default_rng(seed)
    for step in steps:
        for i in range(layers):
            values = dict.fromkeys(MEASUREMENTS, 0.1) | {"mean_cosine": 0.6, "isoscore_unbiased": 0.16}
            part = (step - steps[0]) / max(steps[-1] - steps[0], 1) * i / max(layers - 1, 1)
            values["anisotropy_1"] = 0.2 + (end - 0.2) * part + 1e-4 * rng.standard_normal()
            if i == 0 and layers > 1:
                values |= {name: math.nan for name in values if "centered" in name or "isoscore" in name}
            place = {"step": step, "epoch": step / 10, "order": i, "layer": f"layer_{i}", "rows": 64, "dimensions": 384}
            history.append([place | values | (more if i == layers - 1 and step == steps[-1] else {})])
    return history
