"""A run of a study as one HTML page: the claims, every published number beside ours, the figures, what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import isoscope
from isoscope._report.document import document, render_definition_list, section
from isoscope._report.html import tag
from isoscope.studies.figures import render_figure
from isoscope.studies.outcome import Holds
from isoscope.studies.verdicts import RULE
from isoscope.studies.words import (
    OBSERVATIONS,
    figure_name,
    format_claim_counts,
    format_number,
    format_published,
    format_run_time,
)

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.studies.outcome import Outcome, Row, Table, Value, Verdict
    from isoscope.studies.study import Study

_BADGES = {Holds.yes: "ok", Holds.partly: "look", Holds.no: "bad", Holds.undecided: "", Holds.untested: ""}


def render_study_page(study: Study, outcome: Outcome, told: Mapping[str, Any]) -> str:
    """The page of a run; `told` are the run's facts."""
    paper = study.published.paper
    return document(
        f"{paper.title}, run again",
        isoscope.__version__,
        tag("a", "Skip to the claims", href="#claims", class_="skip"),
        tag(
            "header",
            tag("p", f"isoscope study {study.name}", class_="brand"),
            tag("h1", paper.title),
            tag("p", f"{paper.authors}, {paper.venue} {paper.year}", class_="source"),
            tag("p", format_claim_counts(outcome.verdicts), class_="lede"),
            tag("p", study.about, class_="reasons"),
        ),
        tag(
            "main",
            _render_claims("claims", "What the paper claims, and whether it holds here", outcome.verdicts),
            _render_claims("observations", OBSERVATIONS, outcome.observations) if outcome.observations else None,
            section("numbers", "Published and ours", *(_render_table(each) for each in outcome.tables)),
            section("figures", "Figures", *(render_figure(each) for each in outcome.figures))
            if outcome.figures
            else None,
            _render_notes(outcome, told),
        ),
        styles=["page.css", "advice.css", "training.css", "study.css"],
    )


def _render_claims(name: str, title: str, verdicts: Sequence[Verdict]) -> Markup:
    head = ("claim", "published", "ours", "holds?")
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", each, scope="col") for each in head))),
        tag("tbody", *map(_render_claim, verdicts)),
        class_="trials claims",
    )
    return section(name, title, _render_scroll(table, name))


def _render_claim(verdict: Verdict) -> Markup:
    badge = tag("span", verdict.holds.value, class_=f"badge {_BADGES[verdict.holds]}".strip())
    return tag(
        "tr",
        tag("th", verdict.claim.words, " ", tag("small", verdict.claim.where), scope="row"),
        tag("td", verdict.published, data_label="published"),
        tag("td", verdict.ours, data_label="ours"),
        tag("td", badge, tag("p", verdict.why, class_="hint") if verdict.why else None),
    )


def _render_table(table: Table) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in (table.row_name, *table.columns))))
    rows = [each for row in table.rows for each in _render_rows(row, table)]
    name = f"table-{figure_name(table.key)}"
    return tag(
        "div",
        tag("h3", f"{table.title}{f' ({table.where})' if table.where else ''}", id=f"{name}-title"),
        tag("p", table.note, class_="hint") if table.note else None,
        _render_scroll(tag("table", head, tag("tbody", *rows), class_="trials"), name),
        class_="study-figure",
    )


def _render_rows(row: Row, table: Table) -> list[Markup]:
    """Ours, and below it the published numbers with the difference of ours from them."""
    found = [
        tag(
            "tr",
            tag("th", tag("bdi", row.name), scope="row"),
            *(_render_value(row.ours.get(each), table.choose_digits(row, each)) for each in table.columns),
            class_="ours",
        )
    ]
    if row.published:
        cells = [
            tag("td", format_published(row.published.get(each), row.ours.get(each), table.choose_digits(row, each)))
            for each in table.columns
        ]
        name = f"published{f', {row.of}' if row.of else ''}"
        found.append(tag("tr", tag("th", name, scope="row"), *cells, class_="theirs"))
    return found


def _render_value(value: Value | None, digits: int) -> Markup:
    if value is None:
        return tag("td", "–")
    spread = f" ± {format_number(value.std, digits)}" if value.std == value.std else ""
    title = None
    if spread:
        low, high = value.interval
        title = (
            f"95% interval over {len(value.seeds)} seeds: {format_number(low, digits)} to {format_number(high, digits)}"
        )
    return tag("td", format_number(value.mean, digits), tag("small", spread) if spread else None, title=title)


def _render_scroll(table: Markup, name: str) -> Markup:
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_labelledby=f"{name}-title")


def _render_notes(outcome: Outcome, told: Mapping[str, Any]) -> Markup:
    rows: list[tuple[object, object]] = [
        ("Models", ", ".join(told["models"])),
        ("Data", ", ".join(told["data"])),
        ("Version", "a quick one, smaller than the paper's" if told["quick"] else "in full"),
        *(("Set", f"{name} {value}") for name, value in told["parameters"].items()),
        ("Took", f"{format_run_time(told)}, {told['hardware']}"),
        ("With", ", ".join(f"{name} {value}" for name, value in told["versions"].items())),
        ("± is", "the standard deviation over the seeds; the 95% interval of the mean is in the cell's title"),
        ("Verdicts", RULE),
        *(("Differs", note) for note in outcome.notes),
    ]
    return section("notes", "How this was run, and what differs from the paper", render_definition_list(*rows))
