"""The interface of a task: examples, which of them are independent, and how a fitted repair is scored on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from isoscope._core.errors import InputError

if TYPE_CHECKING:
    from isoscope.advising.inference import Units
    from isoscope.advising.measures import Evidence
    from isoscope.advising.rows import Rows


@dataclass(frozen=True)
class Round:
    """One fit of every candidate: the rows it learns from, and the examples it is scored on."""

    fit_rows: np.ndarray | None
    """Positions among the rows in memory; None fits on the whole source, as in production."""
    examples: np.ndarray


class Task(ABC):
    """Examples of what the vectors are used for."""

    measures: ClassVar[dict[str, str]]
    """The name of each measure, and how it reads in a sentence; the first decides if several could."""
    example: ClassVar[str]
    """What one example is: a pair, a query or a row."""
    variance_factors: ClassVar[dict[str, float]] = {}
    """By measure: how many times larger its variance may be than that of independent units."""

    corpus: Rows
    """The rows in memory, which repairs are fitted to."""
    rows: Rows
    """The rows that examples refer to; fewer than the corpus if equal rows count once."""
    metric: str
    units: Units
    """Which examples are independent."""
    rounds: list[Round]
    """One round on the whole source, or several that hold rows out (`new_rows`)."""

    def __init__(self, rows: Rows, metric: str):
        self.corpus, self.rows, self.metric = rows, rows, metric
        self.notes: list[str] = []
        """What a reader should know about how the task was scored."""

    def __len__(self) -> int:
        return len(self.units.of)

    @abstractmethod
    def score(self, repair: Any, round: Round) -> dict[str, Evidence]:
        """Return the evidence on the examples of a round, by each measure, for a repair fitted to the round's rows."""

    def _note_links(self) -> None:
        if self.units.links is not None:
            self.notes.append(
                f"Most {PLURALS[self.example]} are connected through shared rows: two of them count as dependent if "
                "they share a row themselves."
            )


PLURALS = {"pair": "pairs", "query": "queries", "row": "rows"}


def row_identity(X: np.ndarray) -> np.ndarray:
    """Return a number for each row that is the same for equal rows; −0 equals 0."""
    X = np.ascontiguousarray(X + 0.0)
    as_bytes = X.view(np.dtype((np.void, X.dtype.itemsize * X.shape[1]))).ravel()
    return np.asarray(np.unique(as_bytes, return_inverse=True)[1])


def check_folds(folds: int, examples: int, example: str) -> None:
    """Raise InputError if there are too few examples for this number of folds."""
    if examples < 4 * folds:
        raise InputError(f"{examples} {example} for {folds} folds: need at least {4 * folds}, or use fewer folds")


def check_fit_rows(fit_rows: np.ndarray, total: int) -> None:
    """Raise InputError if holding rows out leaves less than half of them to fit on."""
    if 2 * len(fit_rows) < total:
        raise InputError(
            f"holding out the examples of one fold leaves {len(fit_rows):,} of {total:,} rows to fit on: new_rows "
            "(--new-rows) needs at least half; use more folds, or a source with more rows"
        )
