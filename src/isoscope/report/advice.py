"""The advisor's answer: what to do with a space, how sure that is, and the ways to show it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from sklearn.base import clone

import isoscope
from isoscope.advising.candidates import candidates as all_candidates
from isoscope.advising.deciding import Decision, decide
from isoscope.advising.settings import AdviceSettings
from isoscope.advising.task import Task
from isoscope.advising.tasks import labels_task, pairs_task, retrieval_task, unlabelled_task
from isoscope.advising.trying import Tried, try_all
from isoscope.engines.engine import Progress
from isoscope.errors import InputError
from isoscope.files import replacing
from isoscope.report.finding import plain
from isoscope.stores import Store, open_store
from isoscope.stores.columns import plural
from isoscope.stores.databases.address import shown

SCHEMA = "isoscope.advice/1"
"""The schema of the JSON; the number rises when a reader of the old one would misread the new one."""


def advise(
    source: Any,
    *,
    pairs: Any = None,
    queries: Any = None,
    qrels: Any = None,
    labels: Any = None,
    measure: str | None = None,
    candidates: Iterable[Any] | None = None,
    vectors: str | None = None,
    ids: Any = None,
    text: Any = None,
    metric: str = "cosine",
    folds: int = 5,
    sample: int = 20_000,
    seed: int = 0,
    missing: str = "raise",
    progress: bool | Progress = False,
) -> Advice:
    """Try every repair on the owner's own task, and prescribe the simplest that surely helps, or none.

    Each candidate, leaving the vectors alone included, is fitted to training folds and scored on held-out ones. Give
    one of `pairs`, `queries` with `qrels`, or `labels`; without any the evidence is weak, and the advice says so.

    Parameters
    ----------
    source : path, array, DataFrame, Dataset or store
        Whatever `open_store` opens: the corpus.
    pairs : path, or (first, second, scores)
        Graded similarity of rows, which are named by their ids, their text or their numbers. Scored by Spearman's
        correlation.
    queries : like `source`
        Queries to be answered from the source.
    qrels : path, or {query: {document: relevance}}
        Which documents answer which query, in TREC's or BEIR's format. Scored by nDCG@10 and recall@100.
    labels : column name, or one entry for each row
        Classes. Scored by a linear probe, 10 nearest neighbours and the V-measure of K-means.
    measure : str, optional
        Which of the task's measures decides, alone: "probe", "knn", "v_measure"; "ndcg@10", "recall@100". Unless given,
        each has a say: a repair must surely gain by one and surely lose by none.
    candidates : iterable of repairs, optional
        What to try besides leaving the vectors alone; a grid of all repairs and their obvious chains unless given.
    vectors, ids, text : str, or values, optional
        Columns of the source; see `open_store`.
    metric : {"cosine", "euclidean"}
        How vectors are compared.
    folds : int
        In how many parts the examples are held out.
    sample : int
        Rows of the source that are looked at; those that the task names always are.
    seed : int
        For folds, sample, clusters and the bootstrap.
    missing : {"raise", "drop"}
        Refuse judgements of rows that are not there, or leave them out and say so.
    progress : bool or function
        Show a bar on the terminal; or a function that is told the stage, the rows seen and the share done.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> rng = np.random.default_rng(0)
    >>> topic = rng.integers(0, 5, 400)
    >>> X = np.eye(16)[topic] + 0.3 * rng.standard_normal((400, 16))
    >>> X[:, 9] += 40 * rng.standard_normal(400)               # one coordinate drowns the others
    >>> advice = isoscope.advise(X, labels=topic, measure="v_measure")
    >>> advice.choice.name, advice.choice["v_measure"].verdict
    ('AllButTheTop(1)', 'gain')
    >>> advice.repair.transform(X).shape
    (400, 16)
    """
    settings = AdviceSettings(metric=metric, folds=folds, sample=sample, seed=seed, missing=missing)
    if (queries is None) != (qrels is None):
        raise InputError("queries and qrels go together: need what is asked and what answers it")
    asked = [name for name, given in (("pairs", pairs), ("queries", queries), ("labels", labels)) if given is not None]
    if len(asked) > 1:
        raise InputError(f"{' and '.join(asked)} were given: need one task at a time")
    store = open_store(source, vectors=vectors, labels=labels, ids=ids, text=text)
    if store.dim < 2:
        raise InputError(f"{store.name} has vectors of 1 dimension: need 2 at least")
    if progress is True:
        from isoscope.report.terminal import Bar

        with Bar() as bar:
            return _advised(store, pairs, queries, qrels, labels, measure, candidates, settings, bar)
    told = progress or (lambda stage, rows, share: None)
    return _advised(store, pairs, queries, qrels, labels, measure, candidates, settings, told)


def _advised(
    store: Store,
    pairs: Any,
    queries: Any,
    qrels: Any,
    labels: Any,
    measure: str | None,
    candidates: Iterable[Any] | None,
    settings: AdviceSettings,
    progress: Progress,
) -> Advice:
    if pairs is not None:
        task = pairs_task(store, pairs, settings, progress)
    elif queries is not None:
        task = retrieval_task(store, open_store(queries), qrels, settings, progress)
    elif labels is not None:
        task = labels_task(store, settings, progress)
    else:
        task = unlabelled_task(store, settings, progress)
        if "labels" in store.columns:
            name = store.columns["labels"]
            task.notes.append(f"The source has labels in its column “{name}”, which were not used: --labels {name}.")
    if measure is not None and measure not in list(task.measures):
        raise InputError(f"measure is {measure!r}: this task has {', '.join(task.measures)}")
    fewest = min(len(task.fit_rows(fold)) for fold in range(len(task.folds)))
    every = all_candidates(store.dim, fewest, settings.seed, candidates)
    tried = try_all(task, every, settings.seed, progress)
    advice = Advice.of(store, task, tried, decide(tried, settings.confidence, measure), settings)
    names = {"pairs": pairs, "queries": queries, "qrels": qrels, "labels": labels}
    advice.given = {role: shown(os.fspath(name)) for role, name in names.items() if isinstance(name, str | os.PathLike)}
    advice.alone = measure is not None
    return advice


@dataclass(frozen=True)
class Score:
    """What a candidate got by one measure, and its gain over leaving the vectors alone."""

    value: float
    gain: float
    low: float
    high: float
    """The interval of the gain; those of all candidates hold at once."""
    verdict: str
    """gain, loss or noise."""


@dataclass(frozen=True)
class Trial:
    """A candidate and how it did."""

    name: str
    numbers: int
    """How many numbers it learns from the corpus: the fewer, the simpler."""
    scores: dict[str, Score]
    near_best: bool
    """Whether it is fit to be chosen and no other such is surely better, by the measure that decides."""
    shape: dict[str, float]
    """IsoScore, mean cosine and the like of its space, on rows it was not learnt from."""

    def __getitem__(self, measure: str) -> Score:
        return self.scores[measure]


@dataclass
class Advice:
    """What the advisor found: `choice` is what to do, `repair` does it, `trials` are the evidence."""

    source: str
    n: int
    d: int
    example: str
    """What one example of the task is: a pair, a query or a row."""
    examples: int
    measure: str
    """The one that decided."""
    measures: dict[str, str]
    """All of the task's, in words."""
    settings: AdviceSettings
    trials: list[Trial]
    """The simplest first; the first leaves the vectors alone."""
    chosen: int
    best: int
    blind_gain: float
    """What choosing the best on the other folds gained on each fold."""
    repair: Any
    """The choice, fitted to the whole source; it leaves vectors alone if that is the advice."""
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    """Where what is known came from: pairs, queries, qrels or labels, if they had names."""
    alone: bool = False
    """Whether the measure was asked for, and decided alone."""
    version: str = ""

    @classmethod
    def of(cls, store: Store, task: Task, tried: Tried, decision: Decision, settings: AdviceSettings) -> Advice:
        """Put together what was tried and decided, and fit the choice to the whole source."""
        trials = []
        for i, candidate in enumerate(tried.candidates):
            scores = {
                name: Score(float(g.scores[i]), float(g.gains[i]), float(g.low[i]), float(g.high[i]), g.verdict(i))
                for name, g in decision.gains.items()
            }
            near = bool(decision.near_best[i])
            trials.append(Trial(candidate.name, candidate.numbers, scores, near, tried.shapes[i]))
        return cls(
            source=store.name,
            n=task.rows.total,
            d=store.dim,
            example=task.example,
            examples=len(task),
            measure=decision.measure,
            measures=dict(task.measures),
            settings=settings,
            trials=trials,
            chosen=decision.choice,
            best=decision.best,
            blind_gain=decision.blind_gain,
            repair=clone(tried.candidates[decision.choice].repair).fit(store),
            notes=task.notes,
            left_out=tried.left_out,
            version=isoscope.__version__,
        )

    @property
    def choice(self) -> Trial:
        """What to do."""
        return self.trials[self.chosen]

    @property
    def leaves_alone(self) -> bool:
        """Whether the advice is to do nothing."""
        return self.chosen == 0

    @property
    def paragraph(self) -> str:
        """The advice in plain words."""
        from isoscope.report.wording import paragraph

        return paragraph(self)

    def __getitem__(self, name: str) -> Trial:
        for trial in self.trials:
            if trial.name == name:
                return trial
        raise KeyError(f"{name}: " + self.left_out.get(name, "not among " + ", ".join(t.name for t in self.trials)))

    def __repr__(self) -> str:
        return f"Advice({self.source}: {self.choice.name}, {len(self.trials)} candidates on {self._examples})"

    def __str__(self) -> str:
        from isoscope.report.advice_table import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from isoscope.report.advice_page import fragment

        return fragment(self)

    @property
    def _examples(self) -> str:
        return plural(self.examples, self.example)

    # how it is kept

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the prescribed repair, as `Repair.save` does; if it is to do nothing, one that does nothing."""
        self.repair.save(folder)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the repair, as JSON holds it; docs/advisor.md describes it."""
        held: dict[str, Any] = plain(
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
                "blind_gain": self.blind_gain,
                "paragraph": self.paragraph,
                "trials": [asdict(trial) for trial in self.trials],
                "notes": self.notes,
                "left_out": self.left_out,
            }
        )
        return held

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON; an interruption leaves the old file."""
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the evidence as a page: one file that needs nothing else; an interruption leaves the old one."""
        from isoscope.report.advice_page import advice_page

        with replacing(path) as temporary:
            temporary.write_text(advice_page(self), encoding="utf-8")
