"""Verdicts of isotropy-clusters-classifiers: the numbers of the runs that each claim speaks of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from isoscope.metrics.objectives import silhouette_objective, triplet_objective
from isoscope.studies.isotropy_clusters_classifiers.measure import (
    has_several_models,
    pearson,
    published_correlations,
    score_correlation,
    series_at_moments,
    spearman,
)
from isoscope.studies.reading.classified import GLUE
from isoscope.studies.study import Case, Holds, Value
from isoscope.studies.verdicts import make_verdict
from isoscope.studies.words import format_number

if TYPE_CHECKING:
    from isoscope.studies.isotropy_clusters_classifiers.measure import RunResults
    from isoscope.studies.study import Published, Verdict

_MIN_RANK_CORRELATION = 0.9
"""The rank correlation beyond which two series go together."""
_MAX_PEARSON = -0.8
"""The published r of every task is below this."""
_EPS = 1e-9


def make_verdicts(published: Published, runs: RunResults) -> list[Verdict]:
    """Return a verdict on each claim."""
    tested = {
        "silhouette-rises": lambda: _trend_evidence(runs, "silhouette", up=True),
        "isoscore-falls": lambda: _trend_evidence(runs, "isoscore", up=False),
        "pearson": lambda: _pearson_evidence(published, runs),
        "spearman": lambda: _spearman_evidence(published, runs),
        "seeds": lambda: _seed_spread_evidence(published, runs),
        "objectives-conflict": lambda: _rank_correlation_evidence(runs, "O_I", "O_S", -1),
        "cosine-conflicts": lambda: _rank_correlation_evidence(runs, "cos", "O_S", -1),
        "classifier-clusters": lambda: _rank_correlation_evidence(runs, "O_C", "O_S", 1),
        "collapse": lambda: _trend_evidence(runs, "within", up=False),
        "triplet-bound": lambda: _triplet_bound_evidence(runs),
    }
    said = _published_evidence(published)
    found = []
    for claim in published.claims:
        cases, why, ours = tested[claim.key]() if runs else ([], "", None)
        told = said.get(claim.key, "proved or argued, not measured")
        found.append(
            make_verdict(claim, told, cases, why, ours=ours, digits=4 if claim.key in ("pearson", "spearman") else 3)
        )
    return found


Evidence = tuple[list[Case], str, str | None]
"""The cases of a claim, a reason, and our evidence in words where the cases do not say it."""


def _published_evidence(published: Published) -> dict[str, str]:
    """The published evidence in words, from the published numbers."""
    glue, bounds = published.tables["glue"], published.tables["bounds"]
    r = [each for (_, column), each in glue.items() if column.endswith(" r")]
    rho = [each for (_, column), each in glue.items() if column.endswith(" ρ")]
    first = {row: published.number("correlations", row, "r") for row in published.rows("correlations")}
    tasks = ", ".join(f"{row} {format_number(each.value, 3)}" for row, each in first.items() if each is not None)

    def bound(row: str) -> float:
        return bounds[row, "value"].value

    return {
        "silhouette-rises": "in all tasks (figures)",
        "isoscore-falls": "in all tasks (figures)",
        "pearson": f"{tasks}; GLUE {_format_range([each.value for each in r])}",
        "spearman": f"below {format_number(bound('highest Spearman, 1000 updates'), 3)}; "
        f"GLUE {_format_range([each.value for each in rho])}",
        "seeds": f"at most {bound('largest standard deviation over seeds at any update'):g}, "
        f"on average {bound('mean standard deviation over seeds'):g}",
    }


def _format_range(values: Iterable[float], digits: int = 3) -> str:
    known = sorted(values)
    if not known:
        return "–"
    low, high = format_number(known[0], digits), format_number(known[-1], digits)
    return low if low == high else f"{low} to {high}"


def _format_run(run: tuple[str, str], runs: RunResults) -> str:
    return f"{run[0]} ({run[1]})" if has_several_models(runs, run[0]) else run[0]


def _trend_evidence(runs: RunResults, name: str, *, up: bool) -> Evidence:
    """Return how a series changes from its first to its last value, and whether it does so steadily."""
    claimed, steady = (
        ((0.0, math.inf), (_MIN_RANK_CORRELATION, math.inf))
        if up
        else ((-math.inf, 0.0), (-math.inf, -_MIN_RANK_CORRELATION))
    )
    cases, changes = [], []
    for run, seeds in runs.items():
        first, last = (float(np.mean([each[name][place] for each in seeds])) for place in (0, -1))
        changes.append(f"{_format_run(run, runs)} {format_number(first, 3)} → {format_number(last, 3)}")
        change = Value.of(each[name][-1] - each[name][0] for each in seeds)
        with_time = Value.of(spearman(range(len(each[name])), each[name]) for each in seeds)
        cases += [
            Case.over_seeds(f"{_format_run(run, runs)}, last minus first", change, claimed),
            Case.over_seeds(f"{_format_run(run, runs)}, ρ with time", with_time, steady),
        ]
    why = (
        "The cases are the change of each task, and its rank correlation with time, which must exceed "
        f"{_MIN_RANK_CORRELATION:g}."
    )
    return [each for each in cases if math.isfinite(each.estimate)], why, ", ".join(changes)


def _score_correlations(kind: Callable[..., float], runs: RunResults) -> dict[tuple[str, str], Value]:
    """Return the correlation of the two scores over the seeds, of the runs that have one."""
    found = {run: score_correlation(kind, seeds) for run, seeds in runs.items()}
    return {run: value for run, value in found.items() if math.isfinite(value.mean)}


_NO_CORRELATION_NOTE = "A correlation needs at least three scores that are not all the same."


def _pearson_evidence(published: Published, runs: RunResults) -> Evidence:
    found = _score_correlations(pearson, runs)
    apart = {}
    for (task, model), value in found.items():
        theirs, whose = published_correlations(published, task, model)
        if "Pearson r" in theirs and not whose:
            apart[task, model] = value.mean - theirs["Pearson r"].value
    farthest = max(apart, key=lambda run: abs(apart[run]), default=None)
    near = ""
    if farthest is not None:
        most = format_number(abs(apart[farthest]), 3)
        near = f"At most {most} from the published r of the same model ({_format_run(farthest, runs)})."
    cases = [Case.over_seeds(_format_run(run, runs), value, (-math.inf, _MAX_PEARSON)) for run, value in found.items()]
    return cases, near if found else _NO_CORRELATION_NOTE, None


def _spearman_evidence(published: Published, runs: RunResults) -> Evidence:
    found = _score_correlations(spearman, runs)
    bounds = published.tables["bounds"]
    limit = {glue: bounds[f"highest Spearman, {words}", "value"].value for glue, words in _TASK_GROUPS.items()}
    cases = [
        Case.over_seeds(_format_run(run, runs), value, (-math.inf, limit[run[0] in GLUE]))
        for run, value in found.items()
    ]
    return cases, "" if found else _NO_CORRELATION_NOTE, None


_TASK_GROUPS = {False: "1000 updates", True: "GLUE"}


def _seed_spread_evidence(published: Published, runs: RunResults) -> Evidence:
    spreads = [
        np.std([each[name] for each in seeds], axis=0, ddof=1)
        for seeds in runs.values()
        if len(seeds) > 1
        for name in ("silhouette", "isoscore")
    ]
    if not spreads:
        return [], "At least two seeds are needed.", None
    most, mean = max(float(each.max()) for each in spreads), float(np.mean(np.concatenate(spreads)))
    bounds = published.tables["bounds"]
    largest = bounds["largest standard deviation over seeds at any update", "value"].value
    average = bounds["mean standard deviation over seeds", "value"].value
    cases = [
        Case.exact("largest standard deviation", most, (-math.inf, largest)),
        Case.exact("mean standard deviation", mean, (-math.inf, average)),
    ]
    count = min(len(seeds) for seeds in runs.values() if len(seeds) > 1)
    return cases, "" if count >= 5 else f"Over {count} seeds.", f"at most {most:.2g}, on average {mean:.2g}"


def _rank_correlation_evidence(runs: RunResults, a: str, b: str, sign: int) -> Evidence:
    """Return Spearman's ρ of two series: they go together (sign 1) or in opposite directions (sign −1)."""
    claimed = (_MIN_RANK_CORRELATION, math.inf) if sign > 0 else (-math.inf, -_MIN_RANK_CORRELATION)
    cases = []
    for run, seeds in runs.items():
        value = Value.of(spearman(series_at_moments(each, a), series_at_moments(each, b)) for each in seeds)
        if math.isfinite(value.mean):
            cases.append(Case.over_seeds(_format_run(run, runs), value, claimed))
    if not cases:
        return [], f"These runs have no {a} or no {b}.", None
    why = (
        f"A case is Spearman's ρ of {a} and {b} in a task, which must be beyond "
        f"{format_number(sign * _MIN_RANK_CORRELATION, 1)}."
    )
    against = [each.words for each in cases if each.holds is Holds.no]
    if against:
        why += f" {a} and {b} do not go {'together' if sign > 0 else 'in opposite directions'} in {', '.join(against)}."
        if a == "O_I":
            why += " The sum grows with the distance between labels; equation 2 drops the denominator."
    return cases, why, None


COUNTEREXAMPLE = ([[10.0, 0.0], [-10.0, 0.0], [10.0, 0.0], [-10.0, 0.0]], ["a", "a", "b", "b"])
"""Rows and labels for which the triplet sum is below the silhouette objective: both labels hold the same points."""


def _triplet_bound_evidence(runs: RunResults) -> Evidence:
    """Return O_T − O_S of a counterexample: a bound that fails once is no bound, whatever the runs show."""
    shares = {}
    for run, seeds in runs.items():
        above = [t >= s for each in seeds for t, s in zip(each["O_T"], each["O_S"], strict=True)]
        shares[run] = sum(above) / len(above)
    ours = "O_T ≥ O_S at " + ", ".join(f"{share:.0%} ({_format_run(run, runs)})" for run, share in shares.items())
    triplets = float(triplet_objective(*COUNTEREXAMPLE, squared=False))
    silhouettes = float(silhouette_objective(*COUNTEREXAMPLE))
    case = Case.exact("X = ±10 in both of two labels, O_T − O_S", triplets - silhouettes, (-_EPS, math.inf))
    why = (
        f"The claim is a theorem, so one counterexample refutes it: with X = ±10 in both of two labels, O_T = "
        f"{format_number(triplets, 0)} is below O_S = {format_number(silhouettes, 0)}. Pairs inside a "
        "label have negative weights, "
        "larger in O_T than in O_S. The runs take squared distances in both; the counterexample takes the distances "
        "that equation 5 prints."
    )
    return [case], why, f"{case.words} = {format_number(case.estimate, 0)}; in the runs {ours} of the moments"
