"""What runs of isotropy-clusters-classifiers come to: correlations, series, and which claims they bear out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr

from isoscope.studies.outcome import Figure, Holds, Outcome, Panel, Row, Series, Table, Value, Verdict
from isoscope.studies.published import Number, Published
from isoscope.studies.reading.classified import GLUE
from isoscope.studies.study import Setting
from isoscope.studies.words import number

Runs = Mapping[tuple[str, str], Sequence[dict[str, Any]]]
"""What the seeds gave, for each task and model."""

_FIRST = "all-MiniLM-L6-v2"
_ALONG = ("silhouette", "IsoScore", "O_I", "cos", "O_S", "O_C", "O_T")
_POINTS = 160  # of a line: more cannot be seen


def outcome(published: Published, setting: Setting, runs: Runs, notes: Sequence[str]) -> Outcome:
    """Tables, figures and verdicts of the runs that are there."""
    tables = [
        _correlations(published, "correlations", {key: run for key, run in runs.items() if key[0] not in GLUE}),
        _correlations(published, "glue", {key: run for key, run in runs.items() if key[0] in GLUE}),
        _ends(runs),
        _objectives("spearman", "Spearman's ρ", spearman, runs),
        _objectives("pearson", "Pearson's r", pearson, runs),
        _sizes(published, runs),
    ]
    return Outcome([each for each in tables if each.rows], _figures(runs), _verdicts(published, runs), notes)


# correlations


def pearson(a: Sequence[float], b: Sequence[float]) -> float:
    """Pearson's r; NaN of fewer than three pairs, and where a series does not change."""
    return _correlation(pearsonr, a, b)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's ρ; NaN of fewer than three pairs, and where a series does not change."""
    return _correlation(spearmanr, a, b)


def _correlation(kind: Callable[..., Any], a: Sequence[float], b: Sequence[float]) -> float:
    x, y = np.asarray(a, float), np.asarray(b, float)
    if len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(kind(x, y)[0])


def _of_scores(kind: Callable[..., float], seeds: Sequence[dict[str, Any]]) -> Value:
    return Value.of([kind(run["isoscore"], run["silhouette"]) for run in seeds])


def _theirs(published: Published, task: str, model: str) -> tuple[dict[str, Number], str]:
    """The published correlations of a task, and whose they are if not of our model."""
    if task in GLUE:
        whose = model if f"{model} r" in published.columns("glue") else _FIRST
        found = {name: published.number("glue", task, f"{whose} {sign}") for name, sign in _SIGNS.items()}
    else:
        whose = _FIRST if task in ("polarity", "snli") else "word2vec"
        found = {"Pearson r": published.number("correlations", task, "r")}
    return {name: each for name, each in found.items() if each is not None}, "" if whose == model else whose


_SIGNS = {"Pearson r": "r", "Spearman ρ": "ρ"}


def _correlations(published: Published, key: str, runs: Runs) -> Table:
    rows = []
    for (task, model), seeds in runs.items():
        ours = {"Pearson r": _of_scores(pearson, seeds), "Spearman ρ": _of_scores(spearman, seeds)}
        theirs, whose = _theirs(published, task, model)
        rows.append(Row(f"{task}, {model}", ours, theirs, whose))
    where = "table 3" if key == "glue" else "section 3.2"
    return Table(key, published.titles[key], tuple(_SIGNS), rows, where, digits=4, row_name="task")


def _ends(runs: Runs) -> Table:
    """Where the scores begin and end."""
    rows = []
    for (task, model), seeds in runs.items():
        ours = {
            f"{name}, {end}": Value.of([run[name.lower()][place] for run in seeds])
            for name in ("silhouette", "IsoScore")
            for place, end in ((0, "first"), (-1, "last"))
        }
        rows.append(Row(f"{task}, {model}", ours | {"accuracy": Value.of([run["accuracy"][-1] for run in seeds])}))
    note = "After the first update and after the last. Accuracy is on the optimised items themselves."
    columns = list(rows[0].ours) if rows else []
    return Table("ends", "Where the scores begin and end", columns, rows, "", note, row_name="task")


def _objectives(key: str, words: str, kind: Callable[..., float], runs: Runs) -> Table:
    """How each two of the scores and objectives go together along the runs."""
    columns = {run: f"{run[0]}, {run[1]}" if _several(runs, run[0]) else run[0] for run in runs}
    rows = []
    for a, b in combinations(_ALONG, 2):
        ours = {
            columns[run]: Value.of([kind(_series(seed, a), _series(seed, b)) for seed in seeds])
            for run, seeds in runs.items()
        }
        rows.append(Row(f"{a} and {b}", ours))
    note = (
        "O_I: sum of all squared distances; cos: its cosine form; O_S: silhouette's objective; O_C: the classifier's; "
        "O_T: triplets' bound. All are to be maximised."
    )
    title = f"Scores and objectives of the theory along the runs, {words}"
    return Table(f"objectives-{key}", title, list(columns.values()), rows, "", note, 3, "two series")


def _several(runs: Runs, task: str) -> bool:
    return sum(each == task for each, _ in runs) > 1


def _series(run: dict[str, Any], name: str) -> list[float]:
    """A score or an objective at the moments at which there are objectives."""
    if name not in ("silhouette", "IsoScore"):
        return list(run[name])
    scores = dict(zip(run["updates"], run[name.lower()], strict=True))
    known = sorted(scores)
    places = np.searchsorted(known, run["moments"]).clip(max=len(known) - 1)  # the first at or after the moment
    return [scores[known[place]] for place in places]


def _sizes(published: Published, runs: Runs) -> Table:
    rows = []
    for (task, model), seeds in runs.items():
        ours = {name: Value.of(float(seeds[0][name])) for name in ("items", "parameters", "labels")}
        key, whose = ("glue-sizes", f"{model} parameters") if task in GLUE else ("sizes", "parameters")
        theirs = {"items": published.number(key, task, "items"), "parameters": published.number(key, task, whose)}
        rows.append(Row(f"{task}, {model}", ours, {name: each for name, each in theirs.items() if each is not None}))
    columns, words = ("items", "parameters", "labels"), "Labels: the clusters of the silhouette."
    return Table("sizes", "Items and trained parameters", columns, rows, "tables 1 and 2", words, 0, "task")


# figures


def _figures(runs: Runs) -> list[Figure]:
    found = []
    for glue, key, where in ((False, "2", "figure 2"), (True, "4", "figure 4")):
        some = {run: seeds for run, seeds in runs.items() if (run[0] in GLUE) == glue}
        if some:
            what = "GLUE" if glue else "the first four tasks"
            found.append(
                Figure(
                    f"figure-{key}",
                    f"Silhouette and IsoScore across training, {what}",
                    "Means over the seeds, bands of one standard deviation; IsoScore on a logarithmic axis.",
                    _across(some),
                    where,
                )
            )
    if runs:
        found.append(
            Figure(
                "figure-3",
                "Silhouette against IsoScore",
                "Each line is a run, means over the seeds: it goes from the upper left to the lower right.",
                [
                    Panel(model, [_against(task, seeds) for task, seeds in own.items()], "silhouette", "IsoScore")
                    for model, own in _by_model(runs).items()
                ],
                "figure 3",
            )
        )
        found.append(
            Figure(
                "objectives",
                "Scores and objectives along the runs",
                "The first seed; each series from 0, its lowest value, to 1, its highest.",
                [_theory_panel(task, model, seeds[0], runs) for (task, model), seeds in runs.items()],
            )
        )
    return found


def _by_model(runs: Runs) -> dict[str, dict[str, Sequence[dict[str, Any]]]]:
    found: dict[str, dict[str, Sequence[dict[str, Any]]]] = {}
    for (task, model), seeds in runs.items():
        found.setdefault(model, {})[task] = seeds
    return found


def _across(runs: Runs) -> list[Panel]:
    panels = []
    for model, own in _by_model(runs).items():
        for name in ("silhouette", "IsoScore"):
            lines = [_line(task, seeds, name.lower()) for task, seeds in own.items()]
            panels.append(Panel(f"{name}, {model}", lines, "update", name, log_y=name == "IsoScore"))
    return panels


def _line(task: str, seeds: Sequence[dict[str, Any]], name: str) -> Series:
    shown = _some(len(seeds[0]["updates"]))
    values = np.array([run[name] for run in seeds])[:, shown]
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1) if len(seeds) > 1 else np.zeros(len(shown))
    low = np.maximum(mean - spread, mean / 2) if name == "isoscore" else mean - spread  # a logarithm has no zero
    updates = [seeds[0]["updates"][i] for i in shown]
    return Series(task, updates, mean.tolist(), low.tolist(), (mean + spread).tolist())


def _against(task: str, seeds: Sequence[dict[str, Any]]) -> Series:
    shown = _some(len(seeds[0]["updates"]))
    x, y = (np.mean([run[name] for run in seeds], axis=0)[shown].tolist() for name in ("silhouette", "isoscore"))
    return Series(task, x, y)


def _theory_panel(task: str, model: str, run: dict[str, Any], runs: Runs) -> Panel:
    lines = [Series(name, run["moments"], _unit(_series(run, name)), dashed=name == "O_I") for name in _ALONG]
    title = f"{task}, {model}" if _several(runs, task) else task
    known = [each for each in lines if any(map(math.isfinite, each.y))]
    return Panel(title, known, "update", "share of its range")


def _unit(values: Sequence[float]) -> list[float]:
    known = np.asarray(values, float)
    low, high = known.min(), known.max()
    return list(map(float, (known - low) / (high - low if high > low else 1.0)))


def _some(count: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, _POINTS)).round()})


# claims


def _verdicts(published: Published, runs: Runs) -> list[Verdict]:
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
    return f"{run[0]} ({run[1]})" if _several(runs, run[0]) else run[0]


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
    found = {run: _of_scores(kind, seeds).mean for run, seeds in runs.items()}
    return {run: value for run, value in found.items() if math.isfinite(value)}


_UNCORRELATED: Judged = ("", Holds.untested, "Three scores that are not all the same are needed at least.")


def _pearson(published: Published, runs: Runs) -> Judged:
    found = _correlated(pearson, runs)
    if not found:
        return _UNCORRELATED
    ours = ", ".join(f"{_name(run, runs)} {number(value, 3)}" for run, value in found.items())
    apart = {}
    for (task, model), value in found.items():
        theirs, whose = _theirs(published, task, model)
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
        value = float(np.mean([spearman(_series(each, a), _series(each, b)) for each in seeds]))
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
