"""The function `advise` and its result: the recommended repair, if any, and the evidence."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import isoscope
from isoscope._core.errors import NotFoundError, ParameterError, ShapeError, plural
from isoscope._core.random import check_seed
from isoscope._core.threads import single_threaded_blas
from isoscope._io.json import jsonable
from isoscope._io.progress import show_progress
from isoscope._render import Result
from isoscope.advising.candidates import build_candidates
from isoscope.advising.inference import STABLE_SHARE, compare_candidates, decide
from isoscope.advising.task import AdviceSettings
from isoscope.advising.task_inputs import TaskInputs
from isoscope.advising.trials import try_candidates

if TYPE_CHECKING:
    from isoscope._core.types import Column, GainVerdict, Metric, Missing, Seed, Zeros
    from isoscope._io.progress import Progress
    from isoscope.advising.inference import Choice, Promise
    from isoscope.advising.task import Task
    from isoscope.advising.trials import Trials
    from isoscope.stores.store import Store
    from isoscope.transforms.repair import Repair


SCHEMA = "isoscope.advice/2"
"""The JSON schema; its version increases if readers of the old schema would misread the new one."""


def advise(
    source: Any,
    *,
    pairs: Any = None,
    queries: Any = None,
    qrels: Any = None,
    labels: Column | None = None,
    measure: str | None = None,
    candidates: Iterable[Repair] | None = None,
    vectors: str | None = None,
    ids: Column | None = None,
    query_ids: Column | None = None,
    text: Column | None = None,
    layer: int | None = None,
    metric: Metric = "cosine",
    folds: int = 5,
    sample: int = 20_000,
    seed: Seed = 0,
    missing: Missing = "error",
    zeros: Zeros = "keep",
    new_rows: bool = False,
    progress: bool | Progress | None = None,
) -> Advice:
    """Find the repair that improves your task significantly, if any, and estimate its gain on held-out examples.

    Each candidate is fitted to the whole source, as in production, and scored on the task. Fitting uses no labels or
    judgments. One candidate leaves the vectors unchanged. Pass one of `pairs`, `queries` with `qrels`, or `labels`;
    without a task, the evidence is weak.

    Parameters
    ----------
    source : path, array, DataFrame, Dataset or store
        The corpus; anything that `open_store` opens.
    pairs : path, table, list of (first, second, score), or (first, second, scores)
        Pairs of rows with graded similarity; rows are identified by id, text or row number. Scored by Spearman's
        correlation.
    queries : like `source`
        Query vectors; the source is the corpus being searched.
    qrels : path, {query: {document: relevance}}, table, or list of (query, document, relevance)
        The relevant documents of each query, in TREC or BEIR format. Scored by nDCG@10 and recall@100.
    labels : column name, or one entry for each row
        The class of each row. Scored by a linear probe, the 10 nearest neighbors and the V-measure of k-means.
    measure : str, optional
        The measure that alone decides: "probe", "knn" or "v_measure" for labels, "ndcg@10" or "recall@100" for queries.
        By default, a repair must improve at least one measure significantly and worsen none significantly.
    candidates : iterable of repairs, optional
        The repairs to compare with the unchanged vectors (default: all repairs with a few settings, and chains).
    vectors, ids, text : str, or values, optional
        Columns of the source; see `open_store`. Without ids, judgments may refer to row numbers, counted from 0, if
        that fits the judgments and the vectors; a note reports this.
    query_ids : str, or values, optional
        The ids of the queries.
    layer : int, optional
        The layer to use if the source has hidden states of several layers (default: the last one).
    metric : {"cosine", "euclidean"}
        How vectors are compared.
    folds : int
        The number of folds; the gain is estimated on each fold after selecting a repair on the others.
    sample : int
        The number of rows to keep in memory; rows that the task refers to are kept in addition.
    seed : int, sequence of int, SeedSequence, Generator or None
        Random seed for the sample, folds and k-means.
    missing : {"error", "drop"}
        Raise an error for rows, labels and judgments with a missing value, and for judgments that refer to unknown
        rows; or drop them and report how many.
    zeros : {"keep", "drop"}
        Keep rows of zeros, or drop them.
    new_rows : bool
        Whether to score repairs on rows they were not fitted to. Use this if the repair will be applied to rows that
        arrive later. By default, repairs are scored on the source they were fitted to.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt, for work of more than a second;
        or a function that is called with the stage, the number of rows read and the share of the work done (0 to 1).

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> rng = np.random.default_rng(0)
    >>> topic = rng.integers(0, 5, 400)
    >>> X = np.eye(16)[topic] + 0.3 * rng.standard_normal((400, 16))
    >>> X[:, 9] += 40 * rng.standard_normal(400)               # one coordinate hides the others
    >>> advice = isoscope.advise(X, labels=topic, measure="v_measure")
    >>> advice.choice.name, advice.choice["v_measure"].verdict
    ('Standardize', 'gain')
    >>> advice.repair.transform(X).shape
    (400, 16)
    """
    settings = AdviceSettings(
        metric=metric,
        folds=folds,
        sample=sample,
        seed=check_seed(seed),
        missing=missing,
        zeros=zeros,
        new_rows=bool(new_rows),
    )
    inputs = TaskInputs(source, pairs, queries, qrels, labels, vectors, ids, query_ids, text, layer)
    store, query_store, notes = inputs.open_stores(missing, zeros)
    settings = replace(settings, layer=store.layer)
    if store.dim < 2:
        raise ShapeError(f"{store.name} has vectors with 1 dimension: need at least 2")
    # one BLAS thread: candidates run in our own threads, and threads that wait for each other slow down a busy machine
    with single_threaded_blas(), show_progress(progress) as report:
        task = inputs.open_task(store, query_store, settings, report)
        if measure is not None and measure not in task.measures:
            raise ParameterError(f"measure is {measure!r}: this task supports {', '.join(task.measures)}")
        fewest = min(len(task.corpus) if round.fit_rows is None else len(round.fit_rows) for round in task.rounds)
        repairs = build_candidates(store.dim, fewest, settings.seed, candidates)
        trials = try_candidates(task, store, repairs, settings.seed, report)
        choice, promise = decide(trials.scores, settings.confidence, measure, settings.folds, settings.seed)
    task.notes[:0] = notes
    advice = Advice.of(store, task, trials, choice, promise, settings)
    advice.given = inputs.names
    advice.alone = measure is not None
    return advice


@dataclass(frozen=True)
class Score:
    """A candidate's score on one measure, and its gain over the unchanged vectors."""

    value: float
    gain: float
    low: float
    high: float
    """The ends of the confidence interval of the gain; the intervals are simultaneous over all candidates."""
    verdict: GainVerdict
    """"gain" or "loss" if the difference is significant, else "noise"."""


@dataclass(frozen=True)
class Trial:
    """A candidate and its scores."""

    name: str
    numbers: int
    """The number of parameters it learns from the corpus; fewer means simpler."""
    scores: dict[str, Score]
    shape: dict[str, float]
    """IsoScore, mean cosine and silhouette of its space, on rows it was not fitted to."""
    repair: Repair | None = field(default=None, repr=False)
    """The candidate, fitted to the whole source."""

    def __getitem__(self, measure: str) -> Score:
        return self.scores[measure]

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {score.value:.3f} ({score.gain:+.3f})" for name, score in self.scores.items())
        return f"Trial({self.name}: {scores})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the repair as JSON-compatible values."""
        scores = {measure: asdict(score) for measure, score in self.scores.items()}
        return {"name": self.name, "numbers": self.numbers, "scores": scores, "shape": self.shape}


@dataclass(repr=False)
class Advice(Result):
    """The advice: `choice` is the recommended candidate, `repair` the fitted repair, and `trials` the evidence."""

    source: str
    n: int
    d: int
    example: str
    """What an example is: a pair, a query or a row."""
    examples: int
    measure: str
    """The measure that decided."""
    measures: dict[str, str]
    """All measures of the task: the identifier of each measure, and its name in a sentence."""
    settings: AdviceSettings
    trials: list[Trial]
    """All candidates, simplest first; the first one leaves the vectors unchanged."""
    chosen: int
    best: int
    """The candidate with the largest significant gain; 0 if none. Recommended only if the gain is confirmed."""
    promised_gain: float
    """The gain from following the advice, estimated on held-out examples; 0 if the vectors stay unchanged."""
    selections: dict[str, int]
    """How often each candidate was selected when a fold of the examples was held out."""
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    """The names of the files or columns of pairs, queries, qrels, labels and ids, if they have names."""
    alone: bool = False
    """Whether the measure was requested and decided alone."""
    version: str = ""

    @classmethod
    def of(
        cls, store: Store, task: Task, tried: Trials, choice: Choice, promise: Promise, settings: AdviceSettings
    ) -> Advice:
        """Return the advice, given the trials, the choice and the nested selection."""
        gains = {
            name: choice.gains.get(name) or compare_candidates(tried.scores, settings.confidence, [name])[name]
            for name in task.measures
        }
        trials = []
        for i, candidate in enumerate(tried.candidates):
            scores = {
                name: Score(float(g.scores[i]), float(g.gains[i]), float(g.low[i]), float(g.high[i]), g.verdict(i))
                for name, g in gains.items()
            }
            trials.append(Trial(candidate.name, candidate.numbers, scores, tried.shapes[i], tried.repairs[i]))
        names = [candidate.name for candidate in tried.candidates]
        return cls(
            source=store.name,
            n=task.corpus.total,
            d=store.dim,
            example=task.example,
            examples=len(task),
            measure=choice.measure,
            measures=dict(task.measures),
            settings=settings,
            trials=trials,
            chosen=choice.chosen,
            best=choice.best,
            promised_gain=promise.gain if choice.chosen else 0.0,
            selections={names[i]: count for i, count in sorted(promise.choices.items())},
            notes=task.notes,
            left_out=tried.left_out,
            version=isoscope.__version__,
        )

    @property
    def choice(self) -> Trial:
        """The recommended candidate."""
        return self.trials[self.chosen]

    @property
    def repair(self) -> Repair:
        """The recommended repair, which is fitted; if no repair is recommended, one that changes nothing."""
        if self.choice.repair is None:
            raise NotFoundError(f"{self.choice.name} was not fitted: run advise again")
        return self.choice.repair

    @property
    def leaves_vectors_unchanged(self) -> bool:
        """Whether the advice is to use the vectors as they are."""
        return self.chosen == 0

    @property
    def stability(self) -> float:
        """The share of the nested selections that agree with the advice."""
        return self.selections.get(self.choice.name, 0) / max(sum(self.selections.values()), 1)

    @property
    def is_stable(self) -> bool:
        """Whether at least 80% of the nested selections agree with the advice."""
        return self.stability >= STABLE_SHARE

    def __getitem__(self, name: str) -> Trial:
        for trial in self.trials:
            if trial.name == name:
                return trial
        raise KeyError(
            f"{name}: " + self.left_out.get(name, "not found; choose from " + ", ".join(t.name for t in self.trials))
        )

    def __repr__(self) -> str:
        score = f"{self.measures[self.measure]} {self.choice[self.measure].value:.3f}"
        return (
            f"Advice({self.source}: {self.choice.name}, {score}; {len(self.trials)} candidates, {self._examples_text})"
        )

    @property
    def _examples_text(self) -> str:
        return plural(self.examples, self.example)

    # JSON and HTML

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the recommended repair to a folder; if no repair is recommended, save one that changes nothing."""
        self.repair.save(folder)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the repairs as JSON-compatible values; see docs/advisor.md."""
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
                "choice": self.choice.name,
                "best": self.trials[self.best].name,
                "promised_gain": self.promised_gain,
                "selections": self.selections,
                "stability": self.stability,
                "headline": self.headline,
                "paragraph": self.paragraph,
                "trials": [trial.to_dict() for trial in self.trials],
                "notes": self.notes,
                "left_out": self.left_out,
            }
        )
        return content
