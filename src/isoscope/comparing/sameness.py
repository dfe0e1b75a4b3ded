"""The result of `same`: the answer, the evidence for it, JSON and page."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from isoscope._core.arrays import check_integer, check_real
from isoscope._core.errors import ParameterError, plural
from isoscope._core.missing import check_missing, check_zeros
from isoscope._io.json import jsonable
from isoscope._render import Result

if TYPE_CHECKING:
    from isoscope._core.types import Missing, Zeros
    from isoscope.comparing.paired import Fit
    from isoscope.comparing.sides import Pairing
    from isoscope.comparing.two_sample import Test

SCHEMA = "isoscope.same/1"
"""The JSON schema; its version increases if readers of the old schema would misread the new one."""

Answer = Literal["same", "rescaled", "shifted", "rotated", "different", "mixed", "undecided"]
Evidence = Literal["pairs", "rows", "sketches", "dimensions", "within"]
"""What an answer is based on: matched rows, samples of unmatched rows, sketches, the number of dimensions, or the rows
of one source."""


@dataclass(frozen=True)
class SameSettings:
    """The options of a comparison that affect its result."""

    pair: Pairing = "auto"
    tolerance: float = 0.05
    sample: int = 20_000
    seed: int = 0
    missing: Missing = "error"
    zeros: Zeros = "keep"
    layer: int | None = None

    def __post_init__(self) -> None:
        if not 0 < check_real(self.tolerance, "tolerance") < 1:
            raise ParameterError(f"tolerance is {self.tolerance}: need a number between 0 and 1, such as 0.05")
        if check_integer(self.sample, "sample") < 100:
            raise ParameterError(f"sample is {self.sample}: need at least 100 rows")
        check_missing(self.missing)
        check_zeros(self.zeros)


@dataclass(repr=False)
class Sameness(Result):
    """Whether two sets of vectors come from one space: `answer`, and the evidence for it.

    `bool(result)` is True if the answer is "same".
    """

    answer: Answer
    evidence: Evidence
    old: str
    new: str
    n_old: int
    n_new: int
    d_old: int
    d_new: int
    settings: SameSettings
    compared: int = 0
    """The number of matched rows, or of rows on each side, that were compared."""
    tests: list[Test] = field(default_factory=list)
    """The two-sample tests, for unmatched rows."""
    fits: list[Fit] = field(default_factory=list)
    """The transformations that were tried, for matched rows."""
    decided_by: str = ""
    """The name of the test or transformation that decided."""
    error_rate: float | None = None
    """The nominal false-alarm rate: how often two random parts of one set are not "same"; None for matched rows."""
    scale: float = 1.0
    shift: float = 0.0
    """The length of the shift, relative to the spread of the new vectors."""
    angle: float | None = None
    """The mean angle in degrees by which a rotation turns a vector."""
    residual: float | None = None
    """The median distance between a vector and its prediction, relative to the spread of the new vectors."""
    cosines: tuple[float, float, float] | None = None
    """The 1st, 50th and 99th percentile of the cosines of matched rows."""
    auc: float | None = None
    """How well a classifier tells held-out old rows from new ones: 0.5 is chance, 1 is perfect."""
    auc_low: float | None = None
    auc_high: float | None = None
    cka: float | None = None
    neighbors: float | None = None
    """The mean share of the 10 nearest neighbors that matched rows have in common."""
    enough: int | None = None
    """If undecided: the number of rows that would be enough for an answer; None if no number is enough."""
    changed: list[Any] = field(default_factory=list)
    """At most 1,000 ids: of matched rows that changed while most did not, or, with `within`, of the rows of the second
    space. Rows outside the sample are not listed."""
    n_changed: int = 0
    """The number of such rows among the compared rows."""
    details: dict[str, float] = field(default_factory=dict)
    """Additional numbers by name: for matched rows, the `tolerance` that was applied; with `within`, the measurements
    of `isoscope.audit`'s finding `mixed_spaces`."""
    notes: list[str] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    """The names of the columns with ids that were passed."""
    version: str = ""

    def __bool__(self) -> bool:
        return self.answer == "same"

    def __repr__(self) -> str:
        names = f"{self.old}, {self.new}" if self.new else self.old
        return f"Sameness({self.answer}: {names}; {plural(self.compared, 'row')} compared)"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-compatible values; see docs/same.md."""
        content: dict[str, Any] = jsonable(
            {
                "schema": SCHEMA,
                "isoscope": self.version,
                "answer": self.answer,
                "evidence": self.evidence,
                "decided_by": self.decided_by,
                "error_rate": self.error_rate,
                "old": {"name": self.old, "rows": self.n_old, "dimensions": self.d_old},
                "new": {"name": self.new, "rows": self.n_new, "dimensions": self.d_new},
                "compared": self.compared,
                "settings": asdict(self.settings),
                "headline": self.headline,
                "paragraph": self.paragraph,
                "transformation": {"scale": self.scale, "shift": self.shift, "angle": self.angle},
                "residual": self.residual,
                "cosines": self.cosines,
                "auc": {"value": self.auc, "low": self.auc_low, "high": self.auc_high},
                "cka": self.cka,
                "neighbors": self.neighbors,
                "tests": [{**asdict(test), "rejects": test.rejects} for test in self.tests],
                "fits": [{**asdict(fit), "fits": fit.fits} for fit in self.fits],
                "enough": self.enough,
                "changed": self.changed,
                "n_changed": self.n_changed,
                "details": self.details,
                "notes": self.notes,
            }
        )
        return content
