"""Which claims of isotropy-clusters-classifiers the runs bear out, each by a rule on their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from isoscope.studies.isotropy_clusters_classifiers.correlating import (
    Runs,
    of_scores,
    pearson,
    series,
    several,
    spearman,
    theirs_of,
)
from isoscope.studies.outcome import Holds, Verdict
from isoscope.studies.published import Published
from isoscope.studies.reading.classified import GLUE
from isoscope.studies.words import number


def verdicts(published: Published, runs: Runs) -> list[Verdict]:
    """A verdict on each claim."""
    judged = {
        "silhouette-rises": _goes(runs, "silhouette", up=True),
        "isoscore-falls": _goes(runs, "isoscore", up=False),
        "pearson": _pearson(published, runs),
        "spearman": _spearman(published, runs),
        "seeds": _seeds(published, runs),
        "objectives-conflict": _together(runs, "O_I", "O_S", -1),
        "cosine-conflicts": _together(runs, "cos", "O_S", -1),
        "classifier-clusters": _together(runs, "O_C", "O_S", 1),
        "collapse": _goes(runs, "within", up=False),
        "triplet-bound": _bound(runs),
    }
    said = _said(published)
    return [
        Verdict(claim, said.get(claim.key, "proved or argued, not measured"), *judged[claim.key])
        if runs
        else Verdict(claim, said.get(claim.key, ""), "", Holds.untested)
        for claim in published.claims
    ]


Judged = tuple[str, Holds, str]


def _said(published: Published) -> dict[str, str]:
    """The published evidence in words, from the published numbers."""
    glue, bounds = published.tables["glue"], published.tables["bounds"]
    r = [each for (_, column), each in glue.items() if column.endswith(" r")]
    rho = [each for (_, column), each in glue.items() if column.endswith(" ρ")]
    first = {row: published.number("correlations", row, "r") for row in published.rows("correlations")}
    tasks = ", ".join(f"{row} {number(each.value, 3)}" for row, each in first.items() if each is not None)

    def bound(row: str) -> float:
        return bounds[row, "value"].value

    return {
        "silhouette-rises": "in all tasks (figures)",
        "isoscore-falls": "in all tasks (figures)",
        "pearson": f"{tasks}; GLUE {_range([each.value for each in r])}",
        "spearman": f"below {number(bound('highest Spearman, 1000 updates'), 3)}; "
        f"GLUE {_range([each.value for each in rho])}",
        "seeds": f"at most {bound('largest standard deviation over seeds at any update'):g}, "
        f"on average {bound('mean standard deviation over seeds'):g}",
    }


def _range(values: Iterable[float], digits: int = 3) -> str:
    known = sorted(values)
    if not known:
        return "–"
    low, high = number(known[0], digits), number(known[-1], digits)
    return low if low == high else f"{low} to {high}"


def _name(run: tuple[str, str], runs: Runs) -> str:
    return f"{run[0]} ({run[1]})" if several(runs, run[0]) else run[0]


def _goes(runs: Runs, name: str, *, up: bool) -> Judged:
    """Whether a series goes one way: steadily (ρ with time beyond 0.9), or at least from its first to its last one."""
    sign = 1 if up else -1
    steady, ends, changes = [], [], []
    for run, seeds in runs.items():
        first, last = (float(np.mean([each[name][place] for each in seeds])) for place in (0, -1))
        changes.append(f"{_name(run, runs)} {number(first, 3)} → {number(last, 3)}")
        if any(sign * (each[name][-1] - each[name][0]) <= 0 for each in seeds):
            ends.append(_name(run, runs))
        elif any(not sign * spearman(range(len(each[name])), each[name]) > 0.9 for each in seeds):
            steady.append(_name(run, runs))
    word = "rises" if up else "falls"
    ours = ", ".join(changes)
    if not ends and not steady:
        return ours, Holds.yes, ""
    why = [f"not so in {', '.join(ends)}"] if ends else []
    why += [f"{word}, but not steadily, in {', '.join(steady)}"] if steady else []
    return ours, Holds.no if len(ends) == len(runs) else Holds.partly, "; ".join(why) + "."


def _correlated(kind: Callable[..., float], runs: Runs) -> dict[tuple[str, str], float]:
    """The mean correlation of the two scores over the seeds, of the runs that have one."""
    found = {run: of_scores(kind, seeds).mean for run, seeds in runs.items()}
    return {run: value for run, value in found.items() if math.isfinite(value)}


_UNCORRELATED: Judged = ("", Holds.untested, "Three scores that are not all the same are needed at least.")


def _pearson(published: Published, runs: Runs) -> Judged:
    found = _correlated(pearson, runs)
    if not found:
        return _UNCORRELATED
    ours = ", ".join(f"{_name(run, runs)} {number(value, 3)}" for run, value in found.items())
    apart = {}
    for (task, model), value in found.items():
        theirs, whose = theirs_of(published, task, model)
        if "Pearson r" in theirs and not whose:
            apart[task, model] = value - theirs["Pearson r"].value
    farthest = max(apart, key=lambda run: abs(apart[run]), default=None)
    near = ""
    if farthest is not None:
        most = number(abs(apart[farthest]), 3)
        near = f"At most {most} from the published r of the same model ({_name(farthest, runs)})."
    weak = [_name(run, runs) for run, value in found.items() if not value < -0.8]
    if not weak:
        return ours, Holds.yes, near
    holds = Holds.partly if all(value < 0 for value in found.values()) else Holds.no
    return ours, holds, f"Not below −0.8 in {', '.join(weak)}. {near}".strip()


def _spearman(published: Published, runs: Runs) -> Judged:
    found = _correlated(spearman, runs)
    if not found:
        return _UNCORRELATED
    bounds = published.tables["bounds"]
    limit = {glue: bounds[f"highest Spearman, {words}", "value"].value for glue, words in _LENGTHS.items()}
    ours = ", ".join(f"{_name(run, runs)} {number(value, 4)}" for run, value in found.items())
    above = [_name(run, runs) for run, value in found.items() if not value < limit[run[0] in GLUE]]
    if not above:
        return ours, Holds.yes, ""
    holds = Holds.partly if all(value < -0.9 for value in found.values()) else Holds.no
    return ours, holds, f"Not below the paper's bound in {', '.join(above)}."


_LENGTHS = {False: "1000 updates", True: "GLUE"}


def _seeds(published: Published, runs: Runs) -> Judged:
    spreads = [
        np.std([each[name] for each in seeds], axis=0, ddof=1)
        for seeds in runs.values()
        if len(seeds) > 1
        for name in ("silhouette", "isoscore")
    ]
    if not spreads:
        return "one seed", Holds.untested, "Two seeds are needed at least."
    most, mean = max(float(each.max()) for each in spreads), float(np.mean(np.concatenate(spreads)))
    bounds = published.tables["bounds"]
    met = [
        most < bounds["largest standard deviation over seeds at any update", "value"].value,
        mean < bounds["mean standard deviation over seeds", "value"].value,
    ]
    holds = Holds.yes if all(met) else Holds.partly if any(met) else Holds.no
    count = min(len(seeds) for seeds in runs.values() if len(seeds) > 1)
    return f"at most {most:.2g}, on average {mean:.2g}", holds, "" if count >= 5 else f"Over {count} seeds."


def _together(runs: Runs, a: str, b: str, sign: int) -> Judged:
    """Whether two series go one way (sign 1) or opposite ways (sign −1): ρ beyond 0.9 in every run, or in some."""
    found = {}
    for run, seeds in runs.items():
        value = float(np.mean([spearman(series(each, a), series(each, b)) for each in seeds]))
        if math.isfinite(value):
            found[run] = value
    if not found:
        return "", Holds.untested, f"{a} or {b} is not to be had in these runs."
    ours = "ρ " + ", ".join(f"{_name(run, runs)} {number(value, 3)}" for run, value in found.items())
    against = {_name(run, runs): value for run, value in found.items() if not sign * value > 0.9}
    if not against:
        return ours, Holds.yes, ""
    holds = Holds.no if len(against) == len(found) else Holds.partly
    direction = "together" if all(value > 0.9 for value in against.values()) else "otherwise"
    why = f"{a} and {b} go {direction} in {', '.join(against)}."
    if a == "O_I":
        why += " The sum grows with the labels' distance from each other; equation 2 drops the denominator."
    return ours, holds, why


def _bound(runs: Runs) -> Judged:
    shares = {}
    for run, seeds in runs.items():
        above = [t >= s for each in seeds for t, s in zip(each["O_T"], each["O_S"], strict=True)]
        shares[run] = sum(above) / len(above)
    ours = "O_T ≥ O_S at " + ", ".join(f"{share:.0%} ({_name(run, runs)})" for run, share in shares.items())
    broken = [_name(run, runs) for run, share in shares.items() if share < 1]
    if not broken:
        return ours + " of the moments", Holds.yes, "Squared distances in both."
    holds = Holds.no if len(broken) == len(runs) else Holds.partly
    why = "Pairs inside a label have weights below 0, in O_T farther below than in O_S. Squared distances in both."
    return ours + " of the moments", holds, why
