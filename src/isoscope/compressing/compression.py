"""The result of `compress`: the smallest way to store vectors that keeps the score, with evidence."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.arrays import check_integer, check_real
from isoscope._core.errors import NotFoundError, ParameterError, plural
from isoscope._core.missing import check_missing, check_zeros
from isoscope._io.json import jsonable
from isoscope._render import Result
from isoscope.advising.task import AdviceSettings
from isoscope.auditing.measure import MIN_SAMPLE
from isoscope.compressing.candidates import AS_IS
from isoscope.compressing.database_settings import database_settings
from isoscope.compressing.decision import (
    CONFIDENCE,
    check_original,
    choose,
    compare_extended,
    compare_shares,
    is_kept,
    is_lost,
)
from isoscope.compressing.recall import NeighborRecall

if TYPE_CHECKING:
    from isoscope._core.types import Metric, Missing, Zeros
    from isoscope.advising.task import Task
    from isoscope.compressing.candidates import Candidate
    from isoscope.compressing.database_settings import DatabaseSetting
    from isoscope.compressing.decision import Kept, Outcome
    from isoscope.compressing.trials import Trials
    from isoscope.stores.store import Store
    from isoscope.transforms.quantize import Quantizer

SCHEMA = "isoscope.compress/1"
"""The JSON schema; its version increases if readers of the old schema would misread the new one."""

_CONFIRMED = 2, 8  # candidates that a pass over the whole source scores: in the first pass, and at most
_SIZE_STEP = 1.25  # each of them so many times larger than the one before


@dataclass(frozen=True)
class CompressionSettings:
    """The options of `compress` that affect its results."""

    keep: float = 0.99
    metric: Metric = "cosine"
    rescore: bool = False
    precisions: tuple[str, ...] | None = None
    dimensions: tuple[int, ...] | None = None
    sample: int = 20_000
    seed: int = 0
    missing: Missing = "error"
    zeros: Zeros = "keep"
    confidence: float = CONFIDENCE
    layer: int | None = None
    """The layer that was selected, if the source contains several."""

    def __post_init__(self) -> None:
        if not 0 < check_real(self.keep, "keep") <= 1:
            raise ParameterError(f"keep is {self.keep}: need a share above 0 and at most 1, such as 0.99")
        if self.metric not in ("cosine", "euclidean"):
            raise ParameterError(f'metric is {self.metric!r}: need "cosine" or "euclidean"')
        if check_integer(self.sample, "sample") < MIN_SAMPLE:
            raise ParameterError(f"sample is {self.sample}: need at least {MIN_SAMPLE} rows")
        check_missing(self.missing)
        check_zeros(self.zeros)

    def for_task(self) -> AdviceSettings:
        """Return the settings for reading a task."""
        return AdviceSettings(
            metric=self.metric,
            sample=self.sample,
            seed=self.seed,
            missing=self.missing,
            zeros=self.zeros,
            layer=self.layer,
        )


@dataclass
class CompressionTrial:
    """A candidate, its size and its scores."""

    name: str
    bytes: int
    """Bytes per vector in the index that is searched."""
    stored: int
    """Bytes per vector that rescoring needs in addition; 0 without rescoring."""
    oversampling: int
    """The number of rescored results, divided by the number needed; 0 means no rescoring."""
    scores: dict[str, Kept]
    whole: Kept | None = None
    """Its recall on the whole source, if the others were scored on a sample and this candidate was a finalist."""
    quantizer: Quantizer | None = field(default=None, repr=False)
    """The fitted quantizer; None for the unchanged vectors."""

    def __getitem__(self, measure: str) -> Kept:
        return self.scores[measure]

    def __repr__(self) -> str:
        kept = ", ".join(f"{name} {score.value:.3f}" for name, score in self.scores.items())
        return f"CompressionTrial({self.name}: {plural(self.bytes, 'byte')}, {kept})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the quantizer as JSON-compatible values."""
        content = {name: getattr(self, name) for name in ("name", "bytes", "stored", "oversampling")}
        content["scores"] = {measure: asdict(kept) for measure, kept in self.scores.items()}
        content["whole"] = None if self.whole is None else asdict(self.whole)
        content["parameters"] = None if self.quantizer is None else self.quantizer.get_params(deep=False)
        return content


@dataclass(repr=False)
class Compression(Result):
    """The answer of `compress`: `choice` is the smallest candidate that keeps the score, `trials` the evidence."""

    source: str
    n: int
    d: int
    example: str
    """What an example is: a pair, a query or a row."""
    examples: int
    measure: str
    """The measure on which the recommendation is based."""
    measures: dict[str, str]
    """All measures of the task: the identifier of each measure, and its name in a sentence."""
    settings: CompressionSettings
    trials: list[CompressionTrial]
    """All candidates, smallest first; the last one leaves the vectors unchanged."""
    outcome: Outcome
    """"smaller" if a smaller candidate keeps the share, "none" if all lose more, otherwise "undecided"."""
    chosen: int | None
    """The position of the smallest candidate that keeps the share; None if no candidate was shown to keep it."""
    task: bool
    """Whether a task was given."""
    alone: bool = False
    """Whether the measure was requested and decided alone."""
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    """The names of the files or columns of pairs, queries, qrels, labels and ids, if they have names."""
    version: str = ""

    @classmethod
    def of(
        cls,
        store: Store,
        task: Task | NeighborRecall,
        tried: Trials,
        settings: CompressionSettings,
        total: int,
        measure: str | None,
    ) -> Compression:
        """Return the result, given the scores of all candidates."""
        deciding = measure or next(iter(task.measures))
        check_original(float(tried.scores.values[deciding][:, 0].mean()), deciding)
        notes, used = [], {}
        for name, words in task.measures.items():
            original = float(tried.scores.values[name][:, 0].mean())
            if original > 0:
                used[name] = words
            else:
                notes.append(f"The original vectors score {original:.3f} on {words}, so this measure was not used.")
        compared = [deciding] if measure is not None else list(used)
        shares = compare_shares(tried, settings.keep, compared)
        for name in used:
            if name not in shares:
                shares |= compare_shares(tried, settings.keep, [name])
        trials = [
            CompressionTrial(
                each.name,
                each.bytes,
                each.stored,
                each.oversampling,
                {name: shares[name][i] for name in used},
                quantizer=tried.quantizers[i],
            )
            for i, each in enumerate(tried.candidates)
        ]
        result = cls(
            source=store.name,
            n=total,
            d=store.dim,
            example=task.example,
            examples=len(task),
            measure=deciding,
            measures=used,
            settings=settings,
            trials=trials,
            notes=notes,
            outcome="undecided",
            chosen=None,
            task=not isinstance(task, NeighborRecall),
            alone=measure is not None,
            left_out=tried.left_out,
            version=isoscope.__version__,
        )
        result._choose()
        return result

    def _choose(self) -> None:
        """Set the outcome and the choice."""
        kept = [self._deciding_scores(trial) for trial in self.trials]
        allowed = [self._may_choose(trial) and bool(trial.whole or not self._is_confirmed) for trial in self.trials]
        self.outcome, self.chosen = choose(
            [(trial.bytes, trial.oversampling) for trial in self.trials], kept, allowed, self.measure
        )

    def _deciding_scores(self, trial: CompressionTrial) -> dict[str, Kept]:
        if trial.whole is not None:
            return {self.measure: trial.whole}
        return {self.measure: trial.scores[self.measure]} if self.alone else trial.scores

    @property
    def _is_confirmed(self) -> bool:
        """Whether some eligible candidates were scored on the whole source; if so, only these are compared."""
        return any(trial.whole and self._may_choose(trial) for trial in self.trials)

    def _may_choose(self, trial: CompressionTrial) -> bool:
        return trial.name != AS_IS and (self.settings.rescore or not trial.oversampling)

    def confirm(self, recall_of: Any, tried: Trials) -> None:
        """Score the smallest candidates that keep the share on the whole source, and choose among them.

        `recall_of` returns the recall of every query, given candidates and their quantizers.
        """
        columns: dict[int, np.ndarray] = {}
        count, most = _CONFIRMED
        while finalists := self._list_finalists(columns, count):
            chosen: Sequence[Candidate] = [tried.candidates[i] for i in finalists]
            found = recall_of(chosen, [tried.quantizers[i] for i in finalists])
            columns |= dict(zip(finalists, found, strict=True))
            for i, kept in compare_extended(tried, columns, self.settings.keep, self.measure).items():
                self.trials[i].whole = kept
            self._choose()
            count = min(2 * count, most)

    def _list_finalists(self, done: Collection[int], count: int) -> list[int]:
        """Return the candidates to score on the whole source next; an empty list if the choice is made.

        These are the smallest ones that keep the share on the sample, of a few sizes. If all of those are too small,
        larger ones follow, and then all others that may keep the share.
        """
        finalists: list[int] = []
        if not (self._is_confirmed and self.chosen is not None):
            allowed = [i for i, trial in enumerate(self.trials) if self._may_choose(trial)]
            finalists = (
                self._list_larger(allowed, done)[:count]
                or [
                    i
                    for i in allowed
                    if i not in done and not is_lost(self._deciding_scores(self.trials[i]), self.measure)
                ][-count:]
            )
        return finalists + self._list_rescored(done)[:1]

    def _list_rescored(self, done: Collection[int]) -> list[int]:
        """Return candidates with rescoring that can be mentioned but not chosen; none if one is already confirmed."""
        rescored = [i for i, trial in enumerate(self.trials) if trial.oversampling and not self._may_choose(trial)]
        if any(is_kept(self._deciding_scores(self.trials[i]), self.measure) for i in rescored if i in done):
            return []
        limit = self.choice.bytes
        return self._list_larger([i for i in rescored if self.trials[i].bytes < limit], done)

    def _list_larger(self, positions: Sequence[int], done: Collection[int]) -> list[int]:
        """Return the best candidate of each size that keeps the share on the sample, above the sizes already scored."""
        largest = max((self.trials[i].bytes for i in positions if i in done), default=0)
        sizes: dict[int, int] = {}
        for i in sorted(positions, key=lambda i: -self.trials[i].scores[self.measure].share):
            trial = self.trials[i]
            if trial.bytes > largest and is_kept(self._deciding_scores(trial), self.measure):
                sizes.setdefault(trial.bytes, i)
        found: list[int] = []
        for size in sorted(sizes):
            if not found or size >= _SIZE_STEP * self.trials[found[-1]].bytes:
                found.append(sizes[size])
        return found

    @property
    def original(self) -> CompressionTrial:
        """The unchanged vectors."""
        return self.trials[-1]

    @property
    def choice(self) -> CompressionTrial:
        """The recommended candidate; the unchanged vectors if no smaller one keeps the share."""
        return self.original if self.chosen is None else self.trials[self.chosen]

    @property
    def quantizer(self) -> Quantizer:
        """The recommended quantizer, which is fitted; raises an error if nothing is recommended."""
        if self.choice.quantizer is None:
            raise NotFoundError(f"no smaller candidate was recommended for {self.source}: there is nothing to save")
        return self.choice.quantizer

    @property
    def rescored_choice(self) -> CompressionTrial | None:
        """The smallest index that keeps the share with rescoring, if it is smaller than the choice."""
        for trial in self.trials:
            if trial.bytes >= self.choice.bytes:
                return None
            is_scored = trial.whole is not None or not any(each.whole for each in self.trials)
            if trial.oversampling and is_scored and is_kept(self._deciding_scores(trial), self.measure):
                return trial
        return None

    @property
    def open_question(self) -> CompressionTrial | None:
        """The smallest candidate below the choice that more examples might show to keep the share."""
        for trial in self.trials:
            kept = trial.whole if self._is_confirmed else trial.scores[self.measure]
            if trial.bytes >= self.choice.bytes:
                return None
            if (
                self._may_choose(trial)
                and kept is not None
                and kept.verdict == "undecided"
                and kept.share >= self.settings.keep
            ):
                return trial
        return None

    @property
    def needed(self) -> int | None:
        """If undecided: about how many examples would be enough; None if more than 1,000,000, or if decided."""
        verdicts = [
            trial.whole or trial.scores[self.measure]
            for trial in self.trials
            if self._may_choose(trial) and (trial.whole or not self._is_confirmed)
        ]
        promising = [
            each.needed for each in verdicts if each.verdict == "undecided" and each.share > self.settings.keep
        ]
        others = [each.needed for each in verdicts if each.verdict == "undecided"]
        known = [each for each in (promising or others) if each is not None]
        return (min(known) if promising else max(known)) if known else None

    @property
    def database_settings(self) -> list[DatabaseSetting]:
        """The settings of pgvector, Qdrant, LanceDB and faiss that match the choice."""
        return database_settings(self.choice, self.d, self.settings.metric)

    def __getitem__(self, name: str) -> CompressionTrial:
        for trial in self.trials:
            if trial.name == name:
                return trial
        raise KeyError(
            f"{name}: " + self.left_out.get(name, "not found; choose from " + ", ".join(t.name for t in self.trials))
        )

    def __repr__(self) -> str:
        return (
            f"Compression({self.source}: {self.choice.name}, {self.choice.bytes} of {self.original.bytes} bytes, "
            f"{self.choice[self.measure].share:.1%} of {self.measures[self.measure]}; {len(self.trials)} candidates)"
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the recommended quantizer to a folder; `isoscope.load_transform` loads it."""
        self.quantizer.save(folder)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the quantizers as JSON-compatible values; see docs/compress.md."""
        content: dict[str, Any] = jsonable(
            {
                "schema": SCHEMA,
                "isoscope": self.version,
                "source": {"name": self.source, "rows": self.n, "dimensions": self.d},
                "task": {
                    "example": self.example,
                    "examples": self.examples,
                    "measure": self.measure,
                    "measures": self.measures,
                    "alone": self.alone,
                    "given": self.given,
                },
                "settings": asdict(self.settings),
                "outcome": self.outcome,
                "choice": None if self.chosen is None else self.choice.name,
                "bytes": self.choice.bytes,
                "original_bytes": self.original.bytes,
                "needed": self.needed if self.outcome == "undecided" else None,
                "headline": self.headline,
                "paragraph": self.paragraph,
                "trials": [trial.to_dict() for trial in self.trials],
                "databases": [asdict(setting) for setting in self.database_settings] if self.chosen is not None else [],
                "notes": self.notes,
                "left_out": self.left_out,
            }
        )
        return content
