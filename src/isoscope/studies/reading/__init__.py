"""The data sets that studies read, by name: tasks, sentences, similarities, running text, words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isoscope._core.errors import InputError
from isoscope.studies.reading import classified, running_text, similarities, tasks

if TYPE_CHECKING:
    from isoscope.studies.datasets import DataSet, DataSource

_MODULES = (tasks, classified, running_text, similarities)
DATA_SETS: dict[str, DataSet] = {each.name: each for room in _MODULES for each in room.SETS}
"""Every data set that a study may ask for."""


def fingerprint_data_sets(names: tuple[str, ...], data: DataSource) -> dict[str, str]:
    """Fingerprints of data sets; an `InputError` for the first that is not there, before any work is done."""
    unknown = [name for name in names if name not in DATA_SETS]
    if unknown:
        raise InputError(f"no data set is named {unknown[0]}: there are {', '.join(sorted(DATA_SETS))}")
    return {name: data.fingerprint(DATA_SETS[name]) for name in names}
