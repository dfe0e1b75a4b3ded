"""Several trainings side by side: arms of an experiment, each with a few seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from isoscope._core.errors import InputError
from isoscope.training.history import History

LATE_SHARE = 0.3
"""The last part of training, over which the papers average."""


class StepSeries(NamedTuple):
    """A measurement by step."""

    steps: np.ndarray
    values: np.ndarray


class Runs:
    """Histories by arm.

    Parameters
    ----------
    given : History, sequence of History, or mapping of str to either
        One training, one with several seeds, or arms by their names.

    Examples
    --------
    >>> place = {"epoch": 0.0, "order": 0, "layer": "layer_6", "rows": 64, "dimensions": 384}
    >>> seeds = [History(), History()]
    >>> for seed, history in enumerate(seeds):
    ...     history.append([place | {"step": step, "isoscore": 0.1 * seed + step} for step in (0, 1)])
    >>> Runs(seeds).mean("", "layer_6", "isoscore").values.tolist()
    [0.05, 1.05]
    """

    def __init__(self, given: History | Sequence[History] | Mapping[str, History | Sequence[History]]) -> None:
        arms = given if isinstance(given, Mapping) else {"": given}
        self.arms = {str(name): [held] if isinstance(held, History) else list(held) for name, held in arms.items()}
        if not self.arms or not all(self.arms.values()):
            raise InputError("there is no history to draw: need one, a list of them, or a dict of lists by arm")
        for history in self.all:
            if not isinstance(history, History):
                raise InputError(
                    f"a history is a {type(history).__name__}: need isoscope.History, or History.read(path)"
                )
            if not len(history):
                raise InputError(f"a history is empty{_format_path(history)}: measure at least once before drawing it")

    @property
    def all(self) -> list[History]:
        """Every history."""
        return [history for held in self.arms.values() for history in held]

    @property
    def alone(self) -> History | None:
        """The history, if there is one only."""
        return self.all[0] if len(self.all) == 1 else None

    @property
    def layers(self) -> list[str]:
        """The layers that all have, first to last."""
        common = set.intersection(*(set(history.layers) for history in self.all))
        if not common:
            raise InputError("the histories have no layer in common: need trainings of one model")
        return [layer for layer in self.all[0].layers if layer in common]

    def seeds(self, arm: str, layer: str, measurement: str) -> list[StepSeries]:
        """One line for each history of an arm."""
        return [StepSeries(*history.series(layer, measurement)) for history in self.arms[arm]]

    def mean(self, arm: str, layer: str, measurement: str) -> StepSeries:
        """The mean over an arm's histories, at the steps that all have."""
        lines = self.seeds(arm, layer, measurement)
        steps = lines[0].steps
        for line in lines[1:]:
            steps = np.intersect1d(steps, line.steps)
        values = [line.values[np.isin(line.steps, steps)] for line in lines]
        return StepSeries(steps, np.mean(values, axis=0))

    def late(self, arm: str, layer: str, measurement: str) -> np.ndarray:
        """Each history's mean over the last part of its training."""
        return np.array([_late_mean(line) for line in self.seeds(arm, layer, measurement)])


def _late_mean(line: StepSeries) -> float:
    steps, values = line
    late = values[steps >= steps[-1] - LATE_SHARE * (steps[-1] - steps[0])]
    return float(np.mean(late))


def _format_path(history: History) -> str:
    return f" ({history.path})" if history.path else ""
