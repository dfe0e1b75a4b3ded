"""Render a fine-tuning run as a self-contained HTML page: whether the model learned its task, then its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import isoscope
from isoscope._core.errors import plural
from isoscope._report.html import (
    document,
    render_heading,
    render_main,
    render_scrollable,
    render_table_head,
    section,
    tag,
)
from isoscope._report.line_chart import build_step_chart
from isoscope._report.narrate import (
    SCORE_LABELS,
    capitalize,
    describe_term,
    finetuning_headline,
    training_headline,
    training_paragraph,
)
from isoscope._report.svg import Line
from isoscope._report.training_page import render_charts, render_collapse_warning, render_notes, render_numbers
from isoscope.training.history import History, Runs

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope.finetuning.result import FineTuning


def render_finetuning_page(result: FineTuning) -> str:
    """Return a fine-tuning run as a self-contained HTML document; the histories of its seeds are read from its folder.

    The page begins with the verdict on the task, the scores and the losses. The shape of the layers follows.
    """
    runs = Runs([History.read(result.folder / f"seed-{each.seed}") for each in result.seeds])
    settings = result.settings
    about = f"{Path(settings.model).name or settings.model} on {settings.task}"
    return document(
        f"Fine-tuning of {about}",
        isoscope.__version__,
        tag("a", "Skip to the score", href="#task", class_="skip"),
        _render_heading(result, runs, about),
        render_main(
            _render_task(result),
            _render_term(result),
            section(
                "space",
                "Shape of the embedding space",
                tag("p", tag("strong", training_headline(runs)), class_="reasons"),
                tag("p", training_paragraph(runs), class_="reasons"),
            ),
            *render_charts(runs),
            render_numbers(runs),
            render_notes(runs, _facts(result)),
        ),
        styles=["page.css", "advice.css", "training.css"],
    )


# heading


def _render_heading(result: FineTuning, runs: Runs, about: str) -> Markup:
    settings = result.settings
    size = [
        plural(len(result.seeds), "seed"),
        f"{max(each.steps for each in result.seeds):,} steps",
        f"{settings.train_rows:,} training rows",
        f"{settings.dev_rows:,} dev rows",
        "no regularizer" if settings.regularizer == "none" else f"regularizer {settings.arm}",
    ]
    return render_heading(
        "fine-tuning",
        about,
        " · ".join(size),
        finetuning_headline(result),
        None if all(result.learned) else _render_advice(result),
        render_collapse_warning(runs),
    )


def _render_advice(result: FineTuning) -> Markup:
    """Return what to try if a model has not learned its task."""
    failed = [str(seed.seed) for seed, learned in zip(result.seeds, result.learned, strict=True) if not learned]
    who = "" if not any(result.learned) else f"Seed{'s' if len(failed) > 1 else ''} {', '.join(failed)} failed. "
    weight = "" if result.settings.regularizer == "none" else ", or a smaller regularizer weight"
    return tag(
        "p",
        who,
        tag("strong", "Do not compare the shape of a model that has not learned its task with that of other models. "),
        f"Try another learning rate, more epochs or more rows{weight}.",
        role="note",
        class_="caution bad",
    )


# task


def _render_task(result: FineTuning) -> Section:
    measure = result.settings.measure
    regularized = result.settings.regularizer != "none"
    scores = _seed_lines([seed.scores for seed in result.seeds], measure, "hue-0", "dev set")
    trained = "training, with the regularizer" if regularized else "training"
    checked = "dev set, without the regularizer" if regularized else "dev set"
    losses = [
        *_seed_lines([seed.losses for seed in result.seeds], "loss", "hue-1", trained),
        *_seed_lines([seed.scores for seed in result.seeds], "loss", "hue-0", checked),
    ]
    ends = np.array([min(line.x.min() for line in scores), max(line.x.max() for line in scores)])
    constant = Line(ends, np.full(2, result.baseline[measure]), style="other dashed", name="constant prediction")
    return section(
        "task",
        "Score and loss",
        tag(
            "div",
            _render_figure(
                f"{capitalize(SCORE_LABELS[measure])} by step",
                [constant, *scores],
                "The dashed line is the score of the best constant prediction, such as the most common class.",
            ),
            _render_figure("Loss by step", losses, "The model learns as long as the loss on the dev set falls."),
            class_="figures task",
        ),
        render_scrollable(_render_score_table(result), labeled_by="task-title"),
    )


def _render_figure(title: str, lines: Sequence[Line], caption: str) -> Markup | None:
    chart = build_step_chart(title, lines)
    if chart is None:
        return None
    return tag("figure", tag("h3", title), chart.legend(), chart.to_svg(), tag("figcaption", caption))


def _seed_lines(seeds: Sequence[Sequence[Mapping[str, float]]], key: str, color: str, name: str) -> list[Line]:
    """Return a faint line for each seed and a thick line for their mean, at the steps that all seeds contain."""
    series = [{row["step"]: row[key] for row in rows if key in row} for rows in seeds]
    steps = sorted(set.intersection(*(set(each) for each in series)))
    values = np.array([[each[step] for step in steps] for each in series])
    x = np.array(steps, float)
    faint = [Line(x, row, style=f"{color} faint") for row in values] if len(series) > 1 else []
    return [*faint, Line(x, values.mean(axis=0), style=f"{color} thick", name=name)]


def _render_score_table(result: FineTuning) -> Markup:
    rows = [
        tag(
            "tr",
            tag("th", capitalize(SCORE_LABELS[score]), scope="row"),
            tag("td", str(result.final[score])),
            tag("td", f"{result.baseline[score]:.3f}"),
            tag("td", str(result.late[score])),
        )
        for score in result.scores
    ]
    head = render_table_head("score on the dev set", "at the end", "constant prediction", "mean of the last 30%")
    return tag("table", head, tag("tbody", *rows), class_="trials scores")


# regularizer


def _render_term(result: FineTuning) -> Section | None:
    """Return the section on the regularizer, or None without one."""
    sentences = [f"{capitalize(each)}." for each in describe_term(result)]
    if not sentences:
        return None
    terms = [seed.terms for seed in result.seeds]
    return section(
        "term",
        "Regularizer",
        tag("p", " ".join(sentences), class_="hint"),
        tag(
            "div",
            _render_figure(
                "Term by step", _seed_lines(terms, "term", "hue-2", "term"), "The value that was added to the loss."
            ),
            _render_figure(
                "Gradient ratio by step",
                _seed_lines(terms, "gradient_ratio", "hue-2", "term relative to task"),
                "The norm of the gradient of the term, relative to that of the task. Above 1, the regularizer "
                "outweighs the task.",
            ),
            class_="figures task",
        ),
    )


# notes


def _facts(result: FineTuning) -> dict[str, object]:
    settings = result.settings
    return {
        "model": Path(settings.model).name or settings.model,
        "task": settings.task,
        "regularizer": settings.arm,
        "seeds": ", ".join(str(each.seed) for each in result.seeds),
        "learning rate": f"{settings.learning_rate:g}, {settings.schedule} after a warm-up of {settings.warmup:.0%}",
        "batch": settings.batch_size * settings.accumulate,
        "epochs": f"{settings.epochs:g}",
        **{f"note {number}": note for number, note in enumerate(result.notes, 1)},
        "learned": (
            "A seed has learned the task if its score at the end is above that of the best constant prediction, and "
            "if its Matthews correlation (for grades, Spearman's) is above the 95th percentile of chance."
        ),
    }
