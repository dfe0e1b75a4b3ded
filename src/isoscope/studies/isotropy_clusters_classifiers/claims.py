"""Verdicts on the claims of the paper "Isotropy, clusters, and classifiers"."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from isoscope.metrics.objectives import silhouette_objective, triplet_objective
from isoscope.studies.datasets.classified import GLUE
from isoscope.studies.formatting import format_number, format_range
from isoscope.studies.isotropy_clusters_classifiers.measure import (
    has_several_models,
    published_correlations,
    score_correlation,
    series_at_moments,
)
from isoscope.studies.study import Case, Holds, Value
from isoscope.studies.verdicts import Evidence, correlation, direction, judge_claims

if TYPE_CHECKING:
    from isoscope.studies.isotropy_clusters_classifiers.measure import RunResults
    from isoscope.studies.study import Published, Verdict

_MIN_RANK_CORRELATION = 0.9
"""The rank correlation above which two series are considered to rise and fall together."""
_MAX_PEARSON = -0.8
"""The upper bound of the published r for all tasks."""
_EPS = 1e-9
_ARGUED = "proved or argued, not measured"
_NO_CORRELATION_NOTE = "A correlation needs at least three scores that are not all equal."
_BOUNDS = {False: "1000 updates", True: "GLUE"}


def make_verdicts(published: Published, runs: RunResults) -> list[Verdict]:
    """Return the verdict on each claim."""
    figures = "in all tasks (figures)"
    return judge_claims(
        published.claims,
        {
            "silhouette-rises": lambda: _trend_evidence(figures, runs, "silhouette", 1),
            "isoscore-falls": lambda: _trend_evidence(figures, runs, "isoscore", -1),
            "pearson": lambda: _pearson_evidence(published, runs),
            "spearman": lambda: _spearman_evidence(published, runs),
            "seeds": lambda: _seed_spread_evidence(published, runs),
            "objectives-conflict": lambda: _rank_correlation_evidence(runs, "O_I", "O_S", -1),
            "cosine-conflicts": lambda: _rank_correlation_evidence(runs, "cos", "O_S", -1),
            "classifier-clusters": lambda: _rank_correlation_evidence(runs, "O_C", "O_S", 1),
            "collapse": lambda: _trend_evidence(_ARGUED, runs, "within", -1),
            "triplet-bound": lambda: _triplet_bound_evidence(runs),
        },
    )


def _bound(published: Published, row: str) -> float:
    return published.tables["bounds"][row, "value"].value


def _format_glue_range(published: Published, symbol: str) -> str:
    glue = published.tables["glue"]
    return f"GLUE {format_range([each.value for (_, name), each in glue.items() if name.endswith(f' {symbol}')], 3)}"


def _format_run(run: tuple[str, str], runs: RunResults) -> str:
    return f"{run[0]} ({run[1]})" if has_several_models(runs, run[0]) else run[0]


def _trend_evidence(theirs: str, runs: RunResults, name: str, sign: int) -> Evidence:
    """Return evidence on the change of a series from its first to its last value, and on its trend over time."""
    cases, changes = [], []
    for run, seeds in runs.items():
        first, last = (float(np.mean([each[name][place] for each in seeds])) for place in (0, -1))
        changes.append(f"{_format_run(run, runs)} {format_number(first, 3)} → {format_number(last, 3)}")
        change = Value.of(each[name][-1] - each[name][0] for each in seeds)
        with_time = Value.of(correlation(range(len(each[name])), each[name], ranks=True) for each in seeds)
        cases += [
            Case.over_seeds(f"{_format_run(run, runs)}, last minus first", change, direction(sign)),
            Case.over_seeds(
                f"{_format_run(run, runs)}, ρ with time", with_time, direction(sign, _MIN_RANK_CORRELATION)
            ),
        ]
    why = (
        "Each task has two cases: the change from the first to the last update, and the rank correlation with time. "
        f"The absolute value of this correlation must exceed {_MIN_RANK_CORRELATION:g}."
    )
    return Evidence(
        theirs, [each for each in cases if math.isfinite(each.estimate)], why if runs else "", ", ".join(changes)
    )


def _score_correlations(runs: RunResults, *, ranks: bool) -> dict[tuple[str, str], Value]:
    """Return the correlation of the two scores, aggregated over seeds, for each run in which it is defined."""
    values = {run: score_correlation(seeds, ranks=ranks) for run, seeds in runs.items()}
    return {run: value for run, value in values.items() if math.isfinite(value.mean)}


def _pearson_evidence(published: Published, runs: RunResults) -> Evidence:
    values = _score_correlations(runs, ranks=False)
    differences = {}
    for (task, model), value in values.items():
        numbers, whose = published_correlations(published, task, model)
        if "Pearson r" in numbers and not whose:
            differences[task, model] = value.mean - numbers["Pearson r"].value
    farthest = max(differences, key=lambda run: abs(differences[run]), default=None)
    why = ""
    if farthest is not None:
        most = format_number(abs(differences[farthest]), 3)
        why = (
            f"The largest difference from the published r of the same model is {most} ({_format_run(farthest, runs)})."
        )
    first = {row: published.number("correlations", row, "r") for row in published.rows("correlations")}
    tasks = ", ".join(f"{row} {format_number(each.value, 3)}" for row, each in first.items() if each is not None)
    cases = [Case.over_seeds(_format_run(run, runs), value, (-math.inf, _MAX_PEARSON)) for run, value in values.items()]
    if runs and not values:
        why = _NO_CORRELATION_NOTE
    return Evidence(f"{tasks}; {_format_glue_range(published, 'r')}", cases, why, digits=4)


def _spearman_evidence(published: Published, runs: RunResults) -> Evidence:
    values = _score_correlations(runs, ranks=True)
    limits = {glue: _bound(published, f"highest Spearman, {words}") for glue, words in _BOUNDS.items()}
    cases = [
        Case.over_seeds(_format_run(run, runs), value, (-math.inf, limits[run[0] in GLUE]))
        for run, value in values.items()
    ]
    theirs = f"below {format_number(limits[False], 3)}; {_format_glue_range(published, 'ρ')}"
    return Evidence(theirs, cases, _NO_CORRELATION_NOTE if runs and not values else "", digits=4)


def _seed_spread_evidence(published: Published, runs: RunResults) -> Evidence:
    largest = _bound(published, "largest standard deviation over seeds at any update")
    average = _bound(published, "mean standard deviation over seeds")
    theirs = f"at most {largest:g}, on average {average:g}"
    spreads = [
        np.std([each[name] for each in seeds], axis=0, ddof=1)
        for seeds in runs.values()
        if len(seeds) > 1
        for name in ("silhouette", "isoscore")
    ]
    if not spreads:
        return Evidence(theirs, why="At least two seeds are needed." if runs else "")
    most, mean = max(float(each.max()) for each in spreads), float(np.mean(np.concatenate(spreads)))
    cases = [
        Case.exact("largest standard deviation", most, (-math.inf, largest)),
        Case.exact("mean standard deviation", mean, (-math.inf, average)),
    ]
    count = min(len(seeds) for seeds in runs.values() if len(seeds) > 1)
    ours = f"at most {most:.2g}, on average {mean:.2g}"
    return Evidence(theirs, cases, "" if count >= 5 else f"This run uses {count} seeds.", ours)


def _rank_correlation_evidence(runs: RunResults, a: str, b: str, sign: int) -> Evidence:
    """Return evidence on Spearman's ρ of two series, which must be positive (sign 1) or negative (sign −1)."""
    cases = []
    for run, seeds in runs.items():
        both = [(series_at_moments(each, a), series_at_moments(each, b)) for each in seeds]
        value = Value.of(correlation(*each, ranks=True) for each in both)
        if math.isfinite(value.mean):
            cases.append(Case.over_seeds(_format_run(run, runs), value, direction(sign, _MIN_RANK_CORRELATION)))
    if not cases:
        return Evidence(_ARGUED, why=f"{a} or {b} is not available in these runs." if runs else "")
    why = (
        f"There is one case for each task: Spearman's ρ between {a} and {b} must be "
        f"{'above' if sign > 0 else 'below'} {format_number(sign * _MIN_RANK_CORRELATION, 1)}."
    )
    against = [each.words for each in cases if each.holds is Holds.no]
    if against:
        why += (
            f" {a} and {b} do not move {'together' if sign > 0 else 'in opposite directions'} in {', '.join(against)}."
        )
        if a == "O_I":
            why += " The sum grows with the distance between labels, because equation 2 drops the denominator."
    return Evidence(_ARGUED, cases, why)


COUNTEREXAMPLE = ([[10.0, 0.0], [-10.0, 0.0], [10.0, 0.0], [-10.0, 0.0]], ["a", "a", "b", "b"])
"""Rows and labels whose triplet sum is below their silhouette objective; both labels have the same points."""


def _triplet_bound_evidence(runs: RunResults) -> Evidence:
    """Return evidence on O_T − O_S for a counterexample; one counterexample refutes a bound."""
    if not runs:
        return Evidence(_ARGUED)
    shares = {}
    for run, seeds in runs.items():
        above = [t >= s for each in seeds for t, s in zip(each["O_T"], each["O_S"], strict=True)]
        shares[run] = sum(above) / len(above)
    ours = "O_T ≥ O_S at " + ", ".join(f"{share:.0%} ({_format_run(run, runs)})" for run, share in shares.items())
    triplets = float(triplet_objective(*COUNTEREXAMPLE, squared=False))
    silhouettes = float(silhouette_objective(*COUNTEREXAMPLE))
    case = Case.exact("both labels contain the points ±10, O_T − O_S", triplets - silhouettes, (-_EPS, math.inf))
    why = (
        "The claim is a theorem, so one counterexample refutes it: if two labels both contain the points 10 and "
        f"−10, O_T = {format_number(triplets, 0)} is below O_S = {format_number(silhouettes, 0)}. Pairs within a "
        "label have negative weights, which are larger in O_T than in O_S. The runs use squared distances for both "
        "objectives; the counterexample uses the distances of equation 5."
    )
    ours = f"{case.words} = {format_number(case.estimate, 0)}; in the runs, {ours} of the measured updates"
    return Evidence(_ARGUED, [case], why, ours)
