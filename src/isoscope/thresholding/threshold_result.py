"""The result of `threshold`: the cosine that means a match, the evidence, and the options behind it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from isoscope._core.arrays import check_integer, check_real
from isoscope._core.errors import ParameterError, plural
from isoscope._io.json import jsonable
from isoscope._render import Result
from isoscope.thresholding.cuts import Goal
from isoscope.thresholding.tails import HIGHEST_RATE, TESTS

if TYPE_CHECKING:
    import numpy as np

    from isoscope._core.types import Missing, Zeros
    from isoscope.thresholding.cuts import CutVerdict, Share, Shares
    from isoscope.thresholding.tails import TailCut

SCHEMA = "isoscope.threshold/1"
"""The JSON schema; its version increases if readers of the old schema would misread the new one."""
DEFAULT_PRECISION = 0.9
"""The precision that is requested by default."""
DEFAULT_RATE = 1e-4
"""The false-match rate among random pairs that is requested by default."""

Kind = Literal["pairs", "queries", "labels", "random pairs", "random results"]
"""What the threshold was chosen on: three kinds of judgments, or two kinds of random pairs."""


@dataclass(frozen=True)
class ThresholdSettings:
    """The options of `threshold` that affect its results."""

    precision: float | None = None
    recall: float | None = None
    f1: bool = False
    false_matches: float | None = None
    match_from: float | None = None
    folds: int = 5
    sample: int = 20_000
    seed: int = 0
    missing: Missing = "error"
    zeros: Zeros = "keep"
    confidence: float = 0.95
    layer: int | None = None
    """The layer that was selected, if the source contains several."""

    def __post_init__(self) -> None:
        for name in ("precision", "recall"):
            value = getattr(self, name)
            if value is not None and not 0 < check_real(value, name) < 1:
                raise ParameterError(f"{name} is {value}: need a number between 0 and 1, such as 0.9")
        if self.false_matches is not None and not 0 < check_real(self.false_matches, "false_matches") <= HIGHEST_RATE:
            raise ParameterError(
                f"false_matches is {self.false_matches}: need a rate above 0 and up to {HIGHEST_RATE:g}"
            )
        if self.match_from is not None and not math.isfinite(check_real(self.match_from, "match_from")):
            raise ParameterError(f"match_from is {self.match_from}: need a finite number, the lowest grade of a match")
        check_integer(self.folds, "folds")

    def goal(self) -> Goal:
        """Return what is requested of a threshold, given judgments."""
        given = [name for name in ("precision", "recall", "f1") if getattr(self, name)]
        if len(given) > 1:
            raise ParameterError(f"{' and '.join(given)} were passed together: pass only one goal")
        if self.false_matches is not None:
            raise ParameterError(
                "false_matches needs no judgments, but pairs, qrels or labels were passed: pass precision, recall or "
                "f1, or omit the judgments"
            )
        alpha = 1 - self.confidence
        if self.f1:
            return Goal("f1", 0.0, alpha)
        if self.recall is not None:
            return Goal("recall", self.recall, alpha)
        return Goal("precision", DEFAULT_PRECISION if self.precision is None else self.precision, alpha)

    def rate(self) -> float:
        """The requested false-match rate; only for thresholds chosen without judgments."""
        for name in ("precision", "recall", "f1", "match_from"):
            if getattr(self, name):
                raise ParameterError(
                    f"{name} needs judgments: pass pairs, queries with qrels, or labels; without them, pass "
                    "false_matches (CLI: --false-matches)"
                )
        return DEFAULT_RATE if self.false_matches is None else self.false_matches


@dataclass(frozen=True)
class RelativeCut:
    """A threshold relative to the best result of each query: a result counts if its cosine is at most `gap` lower."""

    verdict: CutVerdict
    gap: float | None
    scores: dict[str, Share]
    """Precision, recall and F1 on held-out queries."""
    needed: int | None = None
    """If undecided: the number of queries that would be enough."""


@dataclass(frozen=True)
class Curve:
    """Precision, recall and F1 of every threshold on all examples, with pointwise intervals."""

    cuts: np.ndarray
    precision: Shares
    recall: Shares
    f1: Shares
    edges: np.ndarray
    """The edges of the histograms."""
    matches: np.ndarray
    """The number of matches in each bin."""
    others: np.ndarray
    """The number of other pairs in each bin."""


@dataclass(repr=False)
class Threshold(Result):
    """The cosine threshold with its evidence: a pair with a cosine of at least `cut` counts as a match.

    `scores` are measured on held-out examples.
    """

    source: str
    n: int
    d: int
    kind: Kind
    goal: str
    """"precision", "recall", "f1" or "false matches"."""
    level: float | None
    """The requested precision, recall or rate; None for F1."""
    verdict: CutVerdict
    """"cut", "no cut" if no cosine separates matches from other pairs, or "undecided" if there are too few examples."""
    cut: float | None
    low: float | None
    high: float | None
    """The ends of the confidence interval of the threshold."""
    example: str
    """What an example is: a pair, a query or a row."""
    examples: int
    pairs: int
    """The number of pairs that were compared."""
    settings: ThresholdSettings
    matches: int | None = None
    """The number of matches among the pairs, if there are judgments."""
    scores: dict[str, Share] = field(default_factory=dict)
    """Precision, recall and F1 on held-out examples; empty without judgments or without a threshold."""
    fold_cuts: list[float | None] = field(default_factory=list)
    """The threshold that was chosen without each fold."""
    lift: Share | None = None
    """By how much the precision on held-out examples exceeds the share of matches."""
    best: tuple[float, Share] | None = None
    """Without a threshold: the threshold that comes closest, and its precision, recall or F1 on all examples."""
    needed: int | None = None
    """If undecided: the number of examples that would be enough; None if more than 1,000 times as many."""
    relative: RelativeCut | None = None
    curve: Curve | None = None
    tail: TailCut | None = None
    notes: list[str] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    """The names of the files or columns that were passed, if they have names."""
    version: str = ""

    @property
    def share(self) -> float | None:
        """The share of matches among all pairs, if there are judgments."""
        return None if self.matches is None else self.matches / self.pairs

    def __repr__(self) -> str:
        cut = self.verdict.replace("cut", "threshold") if self.cut is None else f"{self.cut:.4g}"
        goal = self.goal if self.level is None else f"{self.goal} {self.level:g}"
        return f"Threshold({self.source}: {cut} for {goal}, {plural(self.examples, self.example)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-compatible values; see docs/threshold.md."""
        relative, curve, tail = self.relative, self.curve, self.tail
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "isoscope": self.version,
            "source": {"name": self.source, "rows": self.n, "dimensions": self.d},
            "goal": {"measure": self.goal, "level": self.level},
            "verdict": self.verdict,
            "cut": self.cut,
            "interval": [self.low, self.high],
            "headline": self.headline,
            "paragraph": self.paragraph,
            "population": {
                "kind": self.kind,
                "example": self.example,
                "examples": self.examples,
                "pairs": self.pairs,
                "matches": self.matches,
                "given": self.given,
            },
            "scores": _share_dicts(self.scores),
            "fold_cuts": self.fold_cuts,
            "lift": None if self.lift is None else self.lift._asdict(),
            "best": None if self.best is None else {"cut": self.best[0], **self.best[1]._asdict()},
            "needed": self.needed,
            "relative": None
            if relative is None
            else {
                "verdict": relative.verdict,
                "gap": relative.gap,
                "needed": relative.needed,
                "scores": _share_dicts(relative.scores),
            },
            "curve": None
            if curve is None
            else {
                "cuts": curve.cuts,
                **{
                    name: {end: getattr(shares, end) for end in ("values", "low", "high")}
                    for name, shares in (("precision", curve.precision), ("recall", curve.recall), ("f1", curve.f1))
                },
            },
            "tail": None
            if tail is None
            else {
                "rate": None if tail.rate is None else tail.rate._asdict(),
                "count": tail.count,
                "method": "counted" if tail.passed is None else "extrapolated",
                "tests": None if tail.passed is None else TESTS,
                "passed": tail.passed,
                "factor": tail.factor,
            },
            "settings": asdict(self.settings),
            "notes": self.notes,
        }
        written: dict[str, Any] = jsonable(content)
        return written


def _share_dicts(scores: dict[str, Share]) -> dict[str, Any]:
    return {name: score._asdict() for name, score in scores.items()}
