"""What was measured while a model trained: a row for each layer and step, kept in a Parquet file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from isoscope._core.errors import InputError, warn_data
from isoscope._io.files import atomic_replace
from isoscope.training.layer_metrics import MEASUREMENTS

HISTORY_FILE = "history.parquet"
"""The name of the file in a folder."""

_SCHEMA_KEY, _SCHEMA = "isoscope.history", "1"
_INDEX_COLUMNS = {"step": int, "epoch": float, "order": int, "layer": str, "rows": int, "dimensions": int}
_COLUMNS: dict[str, type] = {**_INDEX_COLUMNS, **dict.fromkeys(MEASUREMENTS, float)}


class History:
    """The measurements of a training, by step and layer.

    A row has `step`, `epoch`, `order` (the layer's place, first to last), `layer` (its name), `rows` and `dimensions`
    of the states, and one column for each of `isoscope.training.layer_metrics.MEASUREMENTS`.

    Parameters
    ----------
    path : path, optional
        The file that `save` writes, or a folder for a `history.parquet`. None keeps the rows in memory alone.

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

    def __len__(self) -> int:
        return len(self._columns["step"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = list(_COLUMNS)
        for values in zip(*self._columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))

    @property
    def layers(self) -> list[str]:
        """The names of the layers, first to last."""
        order = dict(zip(self._columns["layer"], self._columns["order"], strict=True))
        return sorted(order, key=order.__getitem__)

    @property
    def steps(self) -> list[int]:
        """The steps that were measured."""
        return sorted(set(self._columns["step"]))

    def series(self, layer: str, measurement: str) -> tuple[np.ndarray, np.ndarray]:
        """The steps, and what was measured of a layer at each."""
        if measurement not in MEASUREMENTS:
            raise InputError(f"measurement is {measurement!r}: need one of {', '.join(MEASUREMENTS)}")
        mine = [i for i, name in enumerate(self._columns["layer"]) if name == layer]
        if not mine:
            raise InputError(f"layer is {layer!r}: the history has {', '.join(self.layers) or 'none yet'}")
        steps, values = ([self._columns[name][i] for i in mine] for name in ("step", measurement))
        return np.array(steps), np.array(values)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of one measurement; what is not in them is NaN."""
        for row in rows:
            for name, kind in _COLUMNS.items():
                self._columns[name].append(kind(row.get(name, math.nan) if name in MEASUREMENTS else row[name]))

    def truncate(self, step: int) -> None:
        """Drop what was measured at `step` or later: training goes on from there, and measures it anew.

        If that is all of several measurements, another training begins, and the file of the earlier one is set aside.
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
        warn_data(f"{self.path} holds an earlier training, up to step {self.steps[-1]}: it is kept as {aside.name}")

    # the file

    def save(self) -> None:
        """Write the file, if there is to be one; an interruption leaves the old one."""
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
        """The history that `save` wrote, from its file or its folder."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        history, path = cls(path), _resolve_path(path)
        if not path.exists():
            raise InputError(f"{path} does not exist: need a history that a tracker kept")
        try:
            table = pq.read_table(path, partitioning=None)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"{path} cannot be read as Parquet: {reason}; need a history that a tracker kept"
            ) from error
        missing = [name for name in _COLUMNS if name not in table.column_names]
        if missing:
            raise InputError(
                f"{path} has no column {missing[0]}: need a history that a tracker kept, with {len(_COLUMNS)} columns"
            )
        for name, kind in _COLUMNS.items():
            values = table.column(name).to_pylist()
            try:
                history._columns[name] = [kind(math.nan if v is None and kind is float else v) for v in values]
            except (TypeError, ValueError) as error:
                raise InputError(f"{path} has {error} in column {name}: need a history that a tracker kept") from error
        return history


def _resolve_path(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    return path / HISTORY_FILE if path.is_dir() or not path.suffix else path
