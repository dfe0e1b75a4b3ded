"""Tables and figures of the study of "Isotropy, clusters, and classifiers"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope.studies.aggregation import group_by
from isoscope.studies.datasets.classified import GLUE
from isoscope.studies.isotropy_clusters_classifiers.claims import make_verdicts
from isoscope.studies.isotropy_clusters_classifiers.measure import (
    CORRELATION_SYMBOLS,
    has_several_models,
    published_correlations,
    score_correlation,
    series_at_moments,
)
from isoscope.studies.study import Figure, Outcome, Panel, Row, Series, Table, Value
from isoscope.studies.verdicts import correlation

if TYPE_CHECKING:
    from isoscope.studies.isotropy_clusters_classifiers.measure import RunResults
    from isoscope.studies.study import Published, Setting

_SERIES_NAMES = ("silhouette", "IsoScore", "O_I", "cos", "O_S", "O_C", "O_T")
_MAX_POINTS = 160  # points per line; more would not be visible


def make_outcome(published: Published, setting: Setting, runs: RunResults, notes: Sequence[str]) -> Outcome:
    """Return the tables, figures and verdicts for the finished runs."""
    tables = [
        _correlations_table(published, "correlations", {key: run for key, run in runs.items() if key[0] not in GLUE}),
        _correlations_table(published, "glue", {key: run for key, run in runs.items() if key[0] in GLUE}),
        _first_last_table(runs),
        _objectives_table("spearman", "Spearman's ρ", runs),
        _objectives_table("pearson", "Pearson's r", runs),
        _sizes_table(published, runs),
    ]
    return Outcome([each for each in tables if each.rows], _figures(runs), make_verdicts(published, runs), notes)


# tables


def _correlations_table(published: Published, key: str, runs: RunResults) -> Table:
    rows = []
    for (task, model), seeds in runs.items():
        ours = {name: score_correlation(seeds, ranks=name == "Spearman ρ") for name in CORRELATION_SYMBOLS}
        theirs, whose = published_correlations(published, task, model)
        rows.append(Row(f"{task}, {model}", ours, theirs, whose))
    first = published.first(key)
    columns = tuple(CORRELATION_SYMBOLS)
    return Table(key, published.titles[key], columns, rows, first.where, first.note, digits=4, row_name="task")


def _first_last_table(runs: RunResults) -> Table:
    """Return a table of the scores after the first and after the last update."""
    rows = []
    for (task, model), seeds in runs.items():
        ours = {
            f"{name}, {end}": Value.of([run[name.lower()][place] for run in seeds])
            for name in ("silhouette", "IsoScore")
            for place, end in ((0, "first"), (-1, "last"))
        }
        rows.append(Row(f"{task}, {model}", ours | {"accuracy": Value.of([run["accuracy"][-1] for run in seeds])}))
    note = (
        "Scores are measured after the first and after the last update. Accuracy is measured on the optimized items "
        "themselves."
    )
    columns = list(rows[0].ours) if rows else []
    return Table("ends", "First and last scores", columns, rows, "", note, row_name="task")


def _objectives_table(key: str, words: str, runs: RunResults) -> Table:
    """Return a table of the correlations between all pairs of scores and objectives during the runs."""
    columns = {run: f"{run[0]}, {run[1]}" if has_several_models(runs, run[0]) else run[0] for run in runs}
    rows = []
    for a, b in combinations(_SERIES_NAMES, 2):
        ours = {
            columns[run]: Value.of(
                correlation(series_at_moments(seed, a), series_at_moments(seed, b), ranks=key == "spearman")
                for seed in seeds
            )
            for run, seeds in runs.items()
        }
        rows.append(Row(f"{a} and {b}", ours))
    note = (
        "O_I is the sum of all squared distances and cos is its cosine form. O_S is the silhouette objective, O_C is "
        "the classifier objective, and O_T is the triplet bound. All are maximized."
    )
    title = f"Correlations between scores and theoretical objectives during the runs, {words}"
    return Table(f"objectives-{key}", title, list(columns.values()), rows, "", note, 3, "two series")


def _sizes_table(published: Published, runs: RunResults) -> Table:
    rows = []
    for (task, model), seeds in runs.items():
        ours = {name: Value.of(float(seeds[0][name])) for name in ("items", "parameters", "labels")}
        key, whose = ("glue-sizes", f"{model} parameters") if task in GLUE else ("sizes", "parameters")
        theirs = published.numbers(key, task, {"items": "items", "parameters": whose})
        rows.append(Row(f"{task}, {model}", ours, theirs))
    columns, words = ("items", "parameters", "labels"), "The silhouette treats the labels as clusters."
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
                    f"Silhouette and IsoScore during training, {what}",
                    "Lines are means over the seeds; bands show one standard deviation. The IsoScore axis is "
                    "logarithmic.",
                    _training_panels(some),
                    where,
                )
            )
    if runs:
        found.append(
            Figure(
                "figure-3",
                "Silhouette against IsoScore",
                "Each line is a run (mean over the seeds). A line from the upper left to the lower right means that "
                "IsoScore falls while the silhouette rises.",
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
                "Scores and objectives during the runs",
                "The figure shows the first seed. Each series is scaled so that its lowest value is 0 and its "
                "highest value is 1.",
                [_theory_panel(task, model, seeds[0], runs) for (task, model), seeds in runs.items()],
            )
        )
    return found


def _group_by_model(runs: RunResults) -> dict[str, dict[str, Sequence[dict[str, Any]]]]:
    """Return the seeds for each task, by model."""
    by_model = group_by(runs, lambda run: run[1])
    return {model: {task: runs[task, model] for task, _ in own} for model, own in by_model.items()}


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
    low = np.maximum(mean - spread, mean / 2) if name == "isoscore" else mean - spread  # log axis: stay above 0
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
    return Panel(title, known, "update", "scaled value")


def _scale_to_unit(values: Sequence[float]) -> list[float]:
    known = np.asarray(values, float)
    low, high = known.min(), known.max()
    return list(map(float, (known - low) / (high - low if high > low else 1.0)))


def _thin_indices(count: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, _MAX_POINTS)).round()})
