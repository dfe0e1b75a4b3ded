"""Pairs of sentences with people's scores of their likeness: STS 2012 to 2016, STS-B and SICK."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope._io.tables import read_table
from isoscope.studies.datasets import DataSet

if TYPE_CHECKING:
    from isoscope.studies.datasets import DataSource

_YEARS = tuple(f"sts{year}" for year in range(12, 17))
_WIKI = "ixa2.si.ehu.eus/stswiki"
_YEARLY = f"{_WIKI} (as one table: subset, score, sentence1, sentence2)"
_SICK = ("SICK_test_annotated.txt",)
SETS = (
    DataSet("sts12", ("sts12",), ("sts12.tsv", "sts12-train.tsv"), "mteb/sts12-sts", None, _YEARLY),
    *(DataSet(name, (name,), (f"{name}.tsv",), f"mteb/{name}-sts", None, _YEARLY) for name in _YEARS[1:]),
    DataSet(
        "stsb", ("stsb", "STS-B"), tuple(f"sts-{part}.tsv" for part in ("train", "dev", "test")),
        "mteb/stsbenchmark-sts", None, _WIKI,
    ),
    DataSet("sick", ("sick", "SICK"), _SICK, "mteb/sickr-sts", None, "zenodo.org/records/2787612"),
)  # fmt: skip
SIMILARITIES = (*_YEARS, "stsb", "sick", "stsb-dev")
"""What is scored: the test split of each, and STS-B's dev split."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sentences two by two, the score of each pair, and the part of the set that it is of ("" where nothing says)."""

    first: list[str]
    second: list[str]
    scores: np.ndarray
    subsets: list[str]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def texts(self) -> list[str]:
        """All first sentences, then all second ones."""
        return [*self.first, *self.second]

    def part(self, size: int, seed: int = 0) -> Pairs:
        """So many pairs, drawn without regard to scores and kept in their order; all if there are no more."""
        rows = np.sort(np.random.default_rng(seed).permutation(len(self))[:size])
        first, second, subsets = ([each[i] for i in rows] for each in (self.first, self.second, self.subsets))
        return Pairs(first, second, self.scores[rows], subsets)


def source_data_set(name: str) -> str:
    """The data set that the pairs of a name are in.

    >>> source_data_set("stsb-dev"), source_data_set("sts12")
    ('stsb', 'sts12')
    """
    if name not in SIMILARITIES:
        raise InputError(f"no set of pairs is named {name}: there are {', '.join(SIMILARITIES)}")
    return name.partition("-")[0]


def train_data_set(name: str) -> str:
    """The data set whose train split a repair is fitted on before it scores the pairs of a name.

    The years have STS 2012's, which shares no sentence with the later ones, where a fifth to a half of theirs are in
    STS-B's. SICK has STS-B's, which shares none with it: three quarters of the sentences that it scores are in its own.

    >>> train_data_set("sts15"), train_data_set("stsb-dev"), train_data_set("sick")
    ('sts12', 'stsb', 'stsb')
    """
    return "sts12" if source_data_set(name) in _YEARS else "stsb"


def read_pairs(name: str, data: DataSource) -> Pairs:
    """The pairs that are scored under a name of `SIMILARITIES`."""
    return _read_split(source_data_set(name), "dev" if name.endswith("-dev") else "test", data)


def read_train(source: str, data: DataSource) -> Pairs:
    """The train split of sts12 or stsb."""
    return _read_split(source, "train", data)


def _read_split(source: str, split: str, data: DataSource) -> Pairs:
    wanted = next(each for each in SETS if each.name == source)
    if data.folder is None:
        rows = data.rows(wanted, "validation" if split == "dev" else split)
        return _parse_pairs(rows, ("sentence1", "sentence2", "score", None), wanted.hub)
    path = _choose_file(source, split, data.files(wanted))
    if source == "stsb":
        return _parse_pairs(read_table(path, header=False, ragged=True).as_text(), ("5", "6", "4", "0"), path)
    columns = read_table(path).as_text()
    return _parse_pairs(columns, _COLUMN_NAMES["sick" if source == "sick" else "years"], path)


_COLUMN_NAMES: dict[str, tuple[str, str, str, str | None]] = {
    "sick": ("sentence_A", "sentence_B", "relatedness_score", None),
    "years": ("sentence1", "sentence2", "score", "subset"),
}


def _choose_file(source: str, split: str, found: list[Path]) -> Path:
    """The file of a split among those of a set."""
    if source == "stsb":
        return found[("train", "dev", "test").index(split)]
    return found[int(split == "train")]


def _parse_pairs(columns: dict[str, list[Any]], names: tuple[str, str, str, str | None], where: Any) -> Pairs:
    lacking = [each for each in names if each is not None and each not in columns]
    if lacking:
        raise InputError(f"{where} has no column {lacking[0]}: it has {', '.join(columns)}")
    first, second, scores, subset = names
    try:
        found = np.asarray(columns[scores], np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where} has a score that is no number ({error}): need one for each pair") from error
    if len(found) < 3 or not np.isfinite(found).all():
        raise InputError(f"{where} has {len(found)} pairs, or scores that are not finite: need 3 pairs with scores")
    subsets = [""] * len(found) if subset is None else [str(each) for each in columns[subset]]
    return Pairs([str(each) for each in columns[first]], [str(each) for each in columns[second]], found, subsets)
