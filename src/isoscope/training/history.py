"""Histories of training runs: measurements by step and layer."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isoscope._core.errors import FileFormatError, NotFoundError, ParameterError, TooFewRowsError, plural, warn_data
from isoscope._io.files import atomic_replace
from isoscope._render import render
from isoscope.training.layer_metrics import EVIDENCE, MEASUREMENTS

HISTORY_FILE = "history.parquet"
"""The file name of a history in a folder."""

_SCHEMA_KEY, _SCHEMA = "isoscope.history", "1"
_INDEX_COLUMNS = {"step": int, "epoch": float, "order": int, "layer": str, "rows": int, "dimensions": int}
_COLUMNS: dict[str, type] = {**_INDEX_COLUMNS, **dict.fromkeys((*MEASUREMENTS, *EVIDENCE), float)}


class History:
    """The measurements of a training run, by step and layer.

    A row has the columns `step`, `epoch`, `order` (the position of the layer), `layer` (its name), `rows` and
    `dimensions` (the shape of the states), and one column for each name in
    `isoscope.training.layer_metrics.MEASUREMENTS`. The columns `loss` and `label_correlation` help to tell a
    collapse from learning; they are NaN if unknown.

    Parameters
    ----------
    path : path, optional
        The file that `save` writes, or a folder in which it writes `history.parquet`. If None, the rows are kept
        only in memory.

    Examples
    --------
    >>> history = History()
    >>> history.append([{"step": 0, "epoch": 0.0, "order": 0, "layer": "layer_6", "rows": 64, "dimensions": 384,
    ...                  "isoscore": 0.1}])
    >>> history.series("layer_6", "isoscore")
    (array([0]), array([0.1]))
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else _resolve_path(path)
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}

    def __repr__(self) -> str:
        return f"History({plural(len(self.steps), 'step')}, {plural(len(self.layers), 'layer')}{_format_path(self)})"

    def _repr_html_(self) -> str:
        return str(render("History", "notebook", self))

    def __len__(self) -> int:
        return len(self._columns["step"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = list(_COLUMNS)
        for values in zip(*self._columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))

    @property
    def layers(self) -> list[str]:
        """The names of the layers, from first to last."""
        order = dict(zip(self._columns["layer"], self._columns["order"], strict=True))
        return sorted(order, key=order.__getitem__)

    @property
    def steps(self) -> list[int]:
        """The measured steps, in ascending order."""
        return sorted(set(self._columns["step"]))

    def series(self, layer: str, measurement: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps and the values of one measurement for a layer."""
        if measurement not in MEASUREMENTS:
            raise ParameterError(f"measurement is {measurement!r}: need one of {', '.join(MEASUREMENTS)}")
        mine = [i for i, name in enumerate(self._columns["layer"]) if name == layer]
        if not mine:
            advice = f"choose from {', '.join(self.layers)}" if self.layers else "no layers are recorded yet"
            raise NotFoundError(f"layer {layer!r} is not in the history: {advice}")
        steps, values = ([self._columns[name][i] for i in mine] for name in ("step", measurement))
        return np.array(steps), np.array(values)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append the rows of one step; missing measurements become NaN."""
        for row in rows:
            for name, kind in _COLUMNS.items():
                self._columns[name].append(kind(row[name] if name in _INDEX_COLUMNS else row.get(name, math.nan)))

    def truncate(self, step: int) -> None:
        """Drop the rows from `step` on, because training resumes there and measures them again.

        If this drops several steps and leaves none, a new training run has begun, and the file of the earlier run is
        renamed.
        """
        kept = [i for i, each in enumerate(self._columns["step"]) if each < step]
        if len(kept) == len(self):
            return
        if not kept and len(self.steps) > 1:
            self._back_up_file()
        self._columns = {name: [values[i] for i in kept] for name, values in self._columns.items()}

    def _back_up_file(self) -> None:
        if self.path is None or not self.path.exists():
            return
        number = 1
        while (aside := self.path.with_name(f"{self.path.stem}-{number}{self.path.suffix}")).exists():
            number += 1
        os.replace(self.path, aside)
        warn_data(
            f"{self.path} contained an earlier training run, up to step {self.steps[-1]}: the file was renamed "
            f"to {aside.name}"
        )

    # the file

    def save(self) -> None:
        """Write the history to `path` atomically; do nothing if `path` is None."""
        if self.path is None:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {int: pa.int64(), float: pa.float64(), str: pa.string()}
        schema = pa.schema([(name, kinds[kind]) for name, kind in _COLUMNS.items()], metadata={_SCHEMA_KEY: _SCHEMA})
        table = pa.table(self._columns, schema=schema)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace(self.path) as temporary:
            pq.write_table(table, temporary)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> History:
        """Read a history from a file written by `save`, or from the folder that contains it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        history, path = cls(path), _resolve_path(path)
        if not path.exists():
            raise NotFoundError(f"{path} does not exist: need a history file written by a tracker")
        try:
            table = pq.read_table(path, partitioning=None)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise FileFormatError(
                f"{path} cannot be read as Parquet: {reason}; need a history file written by a tracker"
            ) from error
        required = [name for name in _COLUMNS if name not in EVIDENCE]  # earlier versions did not write these
        missing = [name for name in required if name not in table.column_names]
        if missing:
            raise FileFormatError(
                f"{path} has no column {missing[0]}: need a history file written by a tracker, which "
                f"has {len(required)} columns"
            )
        for name, kind in _COLUMNS.items():
            known = name in table.column_names
            values = table.column(name).to_pylist() if known else [None] * table.num_rows
            try:
                history._columns[name] = [kind(math.nan if v is None and kind is float else v) for v in values]
            except (TypeError, ValueError, OverflowError) as error:
                raise FileFormatError(
                    f"{path} has an invalid value in column {name} ({error}): need a history file written by a tracker"
                ) from error
        return history


def build_log_entry(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the values to log by name, without missing values.

    >>> build_log_entry([{"layer": "layer_3", "isoscore": 0.5, "silhouette": float("nan")}])
    {'isotropy/layer_3/isoscore': 0.5}
    """
    return {
        f"isotropy/{row['layer']}/{name}": float(row[name])
        for row in rows
        for name in MEASUREMENTS
        if not math.isnan(row.get(name, math.nan))
    }


def _resolve_path(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    return path / HISTORY_FILE if path.is_dir() or not path.suffix else path


LATE_SHARE = 0.3
"""The final share of training over which the papers average."""


class StepSeries(NamedTuple):
    """The values of a measurement by step."""

    steps: np.ndarray
    values: np.ndarray


class Runs:
    """The histories of several training runs, grouped by arm.

    Parameters
    ----------
    histories : History, sequence of History, or mapping of str to either
        One run, one arm with several seeds, or several arms by name.

    Examples
    --------
    >>> place = {"epoch": 0.0, "order": 0, "layer": "layer_6", "rows": 64, "dimensions": 384}
    >>> seeds = [History(), History()]
    >>> for seed, history in enumerate(seeds):
    ...     history.append([place | {"step": step, "isoscore": 0.1 * seed + step} for step in (0, 1)])
    >>> Runs(seeds).mean("", "layer_6", "isoscore").values.tolist()
    [0.05, 1.05]
    """

    def __init__(self, histories: History | Sequence[History] | Mapping[str, History | Sequence[History]]) -> None:
        arms = histories if isinstance(histories, Mapping) else {"": histories}
        self.arms = {str(name): [runs] if isinstance(runs, History) else list(runs) for name, runs in arms.items()}
        if not self.arms or not all(self.arms.values()):
            raise TooFewRowsError(
                "there is no history to plot: pass a history, a list of histories, or a dict with a list for each arm"
            )
        for history in self.all:
            if not isinstance(history, History):
                raise ParameterError(
                    f"one of the histories is a {type(history).__name__}: need an isoscope.History, such as "
                    "History.read(path)"
                )
            if not len(history):
                raise TooFewRowsError(
                    f"the history{_format_path(history)} is empty: record at least one measurement before plotting it"
                )

    @property
    def all(self) -> list[History]:
        """The histories of all arms."""
        return [history for runs in self.arms.values() for history in runs]

    @property
    def alone(self) -> History | None:
        """The only history if there is exactly one, else None."""
        return self.all[0] if len(self.all) == 1 else None

    @property
    def layers(self) -> list[str]:
        """The layers that all histories contain, from first to last."""
        common = set.intersection(*(set(history.layers) for history in self.all))
        if not common:
            raise ParameterError("the histories have no layer in common: need training runs of the same model")
        return [layer for layer in self.all[0].layers if layer in common]

    def seeds(self, arm: str, layer: str, measurement: str) -> list[StepSeries]:
        """Return one series for each history of an arm."""
        return [StepSeries(*history.series(layer, measurement)) for history in self.arms[arm]]

    def mean(self, arm: str, layer: str, measurement: str) -> StepSeries:
        """Return the mean over an arm's histories, at the steps that all of them contain."""
        lines = self.seeds(arm, layer, measurement)
        steps = lines[0].steps
        for line in lines[1:]:
            steps = np.intersect1d(steps, line.steps)
        values = [line.values[np.isin(line.steps, steps)] for line in lines]
        return StepSeries(steps, np.mean(values, axis=0))

    def late(self, arm: str, layer: str, measurement: str) -> np.ndarray:
        """Return the mean of each history over the last 30% of its steps."""
        return np.array([_late_mean(line) for line in self.seeds(arm, layer, measurement)])


def _late_mean(line: StepSeries) -> float:
    steps, values = line
    late = values[steps >= steps[-1] - LATE_SHARE * (steps[-1] - steps[0])]
    return float(np.mean(late))


def _format_path(history: History) -> str:
    return f" ({history.path})" if history.path else ""
