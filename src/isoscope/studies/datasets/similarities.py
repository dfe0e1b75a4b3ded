"""Sentence pairs with human similarity scores: STS 2012 to 2016, STS-B and SICK."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import FileFormatError, MissingValueError, NotFoundError, TooFewRowsError
from isoscope._io.tables import read_table
from isoscope.studies.datasets.source import DataSet

if TYPE_CHECKING:
    from isoscope.studies.datasets.source import DataSource

_YEARS = tuple(f"sts{year}" for year in range(12, 17))
_WIKI = "ixa2.si.ehu.eus/stswiki"
_YEARLY = f"{_WIKI} (convert to a table with the columns subset, score, sentence1, sentence2)"
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
"""The sets that can be scored: the test split of each dataset, and the dev split of STS-B."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sentence pairs with their scores, and the subset of each pair ("" if unknown)."""

    first: list[str]
    second: list[str]
    scores: np.ndarray
    subsets: list[str]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def texts(self) -> list[str]:
        """All first sentences, then all second sentences."""
        return [*self.first, *self.second]

    def part(self, size: int, seed: int = 0) -> Pairs:
        """Return a random sample of `size` pairs in their original order, or all pairs if there are fewer."""
        rows = np.sort(np.random.default_rng(seed).permutation(len(self))[:size])
        first, second, subsets = ([each[i] for i in rows] for each in (self.first, self.second, self.subsets))
        return Pairs(first, second, self.scores[rows], subsets)


def source_data_set(name: str) -> str:
    """Return the name of the dataset that contains a set of pairs.

    >>> source_data_set("stsb-dev"), source_data_set("sts12")
    ('stsb', 'sts12')
    """
    if name not in SIMILARITIES:
        raise NotFoundError(f"no set of pairs is named {name}: choose from {', '.join(SIMILARITIES)}")
    return name.partition("-")[0]


def train_data_set(name: str) -> str:
    """Return the dataset whose train split is used to fit a repair for a set of pairs.

    STS 2012 to 2016 use the train split of STS 2012. This split shares no sentences with the later years, while the
    train split of STS-B contains a fifth to a half of their sentences. SICK uses the train split of STS-B, which shares
    no sentences with SICK. The train split of SICK itself contains three quarters of the scored sentences.

    >>> train_data_set("sts15"), train_data_set("stsb-dev"), train_data_set("sick")
    ('sts12', 'stsb', 'stsb')
    """
    return "sts12" if source_data_set(name) in _YEARS else "stsb"


def read_pairs(name: str, data: DataSource) -> Pairs:
    """Return the pairs of a set; `name` is one of `SIMILARITIES`."""
    return _read_split(source_data_set(name), "dev" if name.endswith("-dev") else "test", data)


def read_train(source: str, data: DataSource) -> Pairs:
    """Return the train split of sts12 or stsb."""
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
    """Return the file that contains a split."""
    if source == "stsb":
        return found[("train", "dev", "test").index(split)]
    return found[int(split == "train")]


def _parse_pairs(columns: dict[str, list[Any]], names: tuple[str, str, str, str | None], where: Any) -> Pairs:
    missing = [each for each in names if each is not None and each not in columns]
    if missing:
        raise NotFoundError(f"{where} has no column {missing[0]}: its columns are {', '.join(columns)}")
    first, second, scores, subset = names
    try:
        values = np.asarray(columns[scores], np.float64)
    except (TypeError, ValueError) as error:
        raise FileFormatError(f"{where} has a score that is not a number ({error}): need one score per pair") from error
    if len(values) < 3:
        raise TooFewRowsError(f"{where} has {len(values)} pairs: need at least 3")
    if not np.isfinite(values).all():
        raise MissingValueError(f"{where} contains scores that are NaN or infinite: need a finite score for each pair")
    subsets = [""] * len(values) if subset is None else [str(each) for each in columns[subset]]
    return Pairs([str(each) for each in columns[first]], [str(each) for each in columns[second]], values, subsets)
