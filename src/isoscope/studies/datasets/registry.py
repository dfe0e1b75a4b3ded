"""The registry of datasets that studies read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isoscope._core.errors import NotFoundError
from isoscope.studies.datasets import classified, running_text, similarities, tasks

if TYPE_CHECKING:
    from isoscope.studies.datasets.source import DataSet, DataSource

_MODULES = (tasks, classified, running_text, similarities)
DATA_SETS: dict[str, DataSet] = {each.name: each for module in _MODULES for each in module.SETS}
"""All datasets that studies may read, by name."""


def fingerprint_data_sets(names: tuple[str, ...], data: DataSource) -> dict[str, str]:
    """Return a fingerprint of each dataset; raise an `InputError` if one of them is unknown or missing."""
    unknown = [name for name in names if name not in DATA_SETS]
    if unknown:
        raise NotFoundError(f"unknown dataset {unknown[0]}; choose from {', '.join(sorted(DATA_SETS))}")
    return {name: data.fingerprint(DATA_SETS[name]) for name in names}
