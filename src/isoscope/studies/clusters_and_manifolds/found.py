"""The finished arms of the study of clusters and manifolds, sorted for what is shown of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from isoscope.studies.study import Results

K = TypeVar("K")


@dataclass(frozen=True)
class LayerResults:
    """The finished arms, sorted: layers, and word vectors."""

    layers: list[dict[str, Any]]
    words: list[dict[str, Any]]

    @classmethod
    def of(cls, results: Results) -> LayerResults:
        """Those of each kind."""
        kinds = {what: [each for each in results.values() if each["what"] == what] for what in ("layer", "words")}
        return cls(sorted(kinds["layer"], key=lambda each: int(each["layer"])), kinds["words"])

    def clouds(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """The layers of each corpus and model, of all seeds."""
        return group_by(self.layers, lambda each: (each["corpus"], each["model"]))

    def models(self) -> dict[str, list[dict[str, Any]]]:
        """The layers of each model, of all corpora and seeds."""
        return group_by(self.layers, lambda each: each["model"])

    def seeds_by_word_vectors(self) -> dict[str, list[dict[str, Any]]]:
        """The seeds of each set of word vectors."""
        return group_by(self.words, lambda each: each["model"])


def group_by(rows: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], K]) -> dict[K, list[dict[str, Any]]]:
    """Rows that have the same key, in the order of the keys' first."""
    found: dict[K, list[dict[str, Any]]] = {}
    for each in rows:
        found.setdefault(key(each), []).append(each)
    return found


def mean_lid_by_rows(rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    """The mean LID of layers or seeds at the numbers of rows that all of them have."""
    shared = set.intersection(*({int(n) for n in each["lid, cosine, by rows"]} for each in rows))
    return {n: fmean(each["lid, cosine, by rows"][str(n)] for each in rows) for n in sorted(shared)}
