"""What runs of isotropy-clusters-classifiers come to: correlations, series, and which claims they bear out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope.studies.isotropy_clusters_classifiers.claims import make_verdicts
from isoscope.studies.isotropy_clusters_classifiers.measure import (
    CORRELATION_SYMBOLS,
    has_several_models,
    pearson,
    published_correlations,
    score_correlation,
    series_at_moments,
    spearman,
)
from isoscope.studies.reading.classified import GLUE
from isoscope.studies.study import Figure, Outcome, Panel, Row, Series, Table, Value

if TYPE_CHECKING:
    from isoscope.studies.isotropy_clusters_classifiers.measure import RunResults
    from isoscope.studies.study import Published, Setting

_SERIES_NAMES = ("silhouette", "IsoScore", "O_I", "cos", "O_S", "O_C", "O_T")
_POINTS = 160  # of a line: more cannot be seen


def make_outcome(published: Published, setting: Setting, runs: RunResults, notes: Sequence[str]) -> Outcome:
    """Tables, figures and verdicts of the runs that are there."""
    tables = [
        _correlations_table(published, "correlations", {key: run for key, run in runs.items() if key[0] not in GLUE}),
        _correlations_table(published, "glue", {key: run for key, run in runs.items() if key[0] in GLUE}),
        _first_last_table(runs),
        _objectives_table("spearman", "Spearman's ρ", spearman, runs),
        _objectives_table("pearson", "Pearson's r", pearson, runs),
        _sizes_table(published, runs),
    ]
    return Outcome([each for each in tables if each.rows], _figures(runs), make_verdicts(published, runs), notes)


# tables


def _correlations_table(published: Published, key: str, runs: RunResults) -> Table:
    rows = []
    for (task, model), seeds in runs.items():
        ours = {"Pearson r": score_correlation(pearson, seeds), "Spearman ρ": score_correlation(spearman, seeds)}
        theirs, whose = published_correlations(published, task, model)
        rows.append(Row(f"{task}, {model}", ours, theirs, whose))
    some = next(iter(published.tables[key].values()))
    return Table(
        key, published.titles[key], tuple(CORRELATION_SYMBOLS), rows, some.where, some.note, digits=4, row_name="task"
    )


def _first_last_table(runs: RunResults) -> Table:
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


def _objectives_table(key: str, words: str, kind: Callable[..., float], runs: RunResults) -> Table:
    """How each two of the scores and objectives go together along the runs."""
    columns = {run: f"{run[0]}, {run[1]}" if has_several_models(runs, run[0]) else run[0] for run in runs}
    rows = []
    for a, b in combinations(_SERIES_NAMES, 2):
        ours = {
            columns[run]: Value.of([kind(series_at_moments(seed, a), series_at_moments(seed, b)) for seed in seeds])
            for run, seeds in runs.items()
        }
        rows.append(Row(f"{a} and {b}", ours))
    note = (
        "O_I: sum of all squared distances; cos: its cosine form; O_S: silhouette's objective; O_C: the classifier's; "
        "O_T: triplets' bound. All are to be maximised."
    )
    title = f"Scores and objectives of the theory along the runs, {words}"
    return Table(f"objectives-{key}", title, list(columns.values()), rows, "", note, 3, "two series")


def _sizes_table(published: Published, runs: RunResults) -> Table:
    rows = []
    for (task, model), seeds in runs.items():
        ours = {name: Value.of(float(seeds[0][name])) for name in ("items", "parameters", "labels")}
        key, whose = ("glue-sizes", f"{model} parameters") if task in GLUE else ("sizes", "parameters")
        theirs = {"items": published.number(key, task, "items"), "parameters": published.number(key, task, whose)}
        rows.append(Row(f"{task}, {model}", ours, {name: each for name, each in theirs.items() if each is not None}))
    columns, words = ("items", "parameters", "labels"), "Labels: the clusters of the silhouette."
    return Table("sizes", "Items and trained parameters", columns, rows, "tables 1 and 2", words, 0, "task")


# figures


def _figures(runs: RunResults) -> list[Figure]:
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
                    _training_panels(some),
                    where,
                )
            )
    if runs:
        found.append(
            Figure(
                "figure-3",
                "Silhouette against IsoScore",
                "Each line is a run, means over the seeds: where one score falls as the other rises, it goes from "
                "the upper left to the lower right.",
                [
                    Panel(
                        model,
                        [_silhouette_isoscore_series(task, seeds) for task, seeds in own.items()],
                        "silhouette",
                        "IsoScore",
                    )
                    for model, own in _group_by_model(runs).items()
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


def _group_by_model(runs: RunResults) -> dict[str, dict[str, Sequence[dict[str, Any]]]]:
    found: dict[str, dict[str, Sequence[dict[str, Any]]]] = {}
    for (task, model), seeds in runs.items():
        found.setdefault(model, {})[task] = seeds
    return found


def _training_panels(runs: RunResults) -> list[Panel]:
    panels = []
    for model, own in _group_by_model(runs).items():
        for name in ("silhouette", "IsoScore"):
            lines = [_band_series(task, seeds, name.lower()) for task, seeds in own.items()]
            panels.append(Panel(f"{name}, {model}", lines, "update", name, log_y=name == "IsoScore"))
    return panels


def _band_series(task: str, seeds: Sequence[dict[str, Any]], name: str) -> Series:
    shown = _thin_indices(len(seeds[0]["updates"]))
    values = np.array([run[name] for run in seeds])[:, shown]
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1) if len(seeds) > 1 else np.zeros(len(shown))
    low = np.maximum(mean - spread, mean / 2) if name == "isoscore" else mean - spread  # a logarithm has no zero
    updates = [seeds[0]["updates"][i] for i in shown]
    return Series(task, updates, mean.tolist(), low.tolist(), (mean + spread).tolist())


def _silhouette_isoscore_series(task: str, seeds: Sequence[dict[str, Any]]) -> Series:
    shown = _thin_indices(len(seeds[0]["updates"]))
    x, y = (np.mean([run[name] for run in seeds], axis=0)[shown].tolist() for name in ("silhouette", "isoscore"))
    return Series(task, x, y)


def _theory_panel(task: str, model: str, run: dict[str, Any], runs: RunResults) -> Panel:
    lines = [
        Series(name, run["moments"], _scale_to_unit(series_at_moments(run, name)), dashed=name == "O_I")
        for name in _SERIES_NAMES
    ]
    title = f"{task}, {model}" if has_several_models(runs, task) else task
    known = [each for each in lines if any(map(math.isfinite, each.y))]
    return Panel(title, known, "update", "share of its range")


def _scale_to_unit(values: Sequence[float]) -> list[float]:
    known = np.asarray(values, float)
    low, high = known.min(), known.max()
    return list(map(float, (known - low) / (high - low if high > low else 1.0)))


def _thin_indices(count: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, _POINTS)).round()})
