"""Render a grouped audit as an HTML page and as a notebook table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from string import ascii_uppercase as LETTERS
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import ParameterError, TooFewRowsError
from isoscope._report.cards import SYMBOLS, VERDICT_LABELS
from isoscope._report.cloud import HUES
from isoscope._report.commands import format_audit_command, is_file
from isoscope._report.gallery import render_gallery
from isoscope._report.glossary import render_glossary
from isoscope._report.grouped_panels import choose_panels
from isoscope._report.grouped_text import describe_left_out, describe_worst_group, rank_group, sort_groups
from isoscope._report.html import (
    document,
    join_markup,
    render_code_block,
    render_definition_list,
    render_heading,
    render_main,
    render_notebook_table,
    render_scrollable,
    render_table_head,
    section,
    tag,
)
from isoscope._report.line_chart import (
    GroupAxis,
    GroupCurve,
    build_group_chart,
    find_offscale_nulls,
    find_offscale_values,
    render_group_chart,
    tick_formatter,
)
from isoscope._report.narrate import (
    capitalize,
    describe_groups,
    describe_series,
    format_confidence,
    format_group_name,
    group_noun,
    has_numeric_groups,
    join_words,
    plural_group_noun,
    spell_number,
)
from isoscope._report.svg import Scale, draw_mark, format_tick, render_legend, render_legend_entry
from isoscope._report.svg_file import render_chart_image
from isoscope._report.terminal import HEADLINES, describe_grouped_notes, find_headlines, format_group_value
from isoscope.auditing.finding import VERDICTS, format_number

if TYPE_CHECKING:
    from isoscope._report.grouped_panels import Panel, Trace
    from isoscope._report.html import Markup, Section
    from isoscope.auditing.grouped import GroupedAudit


_MAX_TICKS = 4  # names of ranges below a chart


def render_grouped_page(audits: Sequence[GroupedAudit]) -> str:
    """Return grouped audits as a self-contained HTML document with a summary, a chart per finding and point clouds.

    Parameters
    ----------
    audits : sequence of GroupedAudit
        One audit, or several to compare (of different models, for example); each has its own lines.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> layer = np.arange(400) // 200
    >>> cloud = np.random.default_rng(0).standard_normal((400, 8)) + layer[:, None]
    >>> render_grouped_page([isoscope.audit(cloud, by=layer)])[:15]
    '<!doctype html>'
    """
    _check_audits(audits)
    axis = _choose_axis(audits)
    panels, zero = choose_panels(audits)
    panels.sort(key=lambda panel: _rank_panel(panel, audits), reverse=True)  # stable: equal ranks keep their order
    clouds = render_gallery(audits)
    return document(
        _format_title(audits),
        audits[0].version,
        tag("a", "Skip to the charts", href="#courses", class_="skip"),
        _render_heading(audits),
        render_main(
            _render_charts(audits, axis, panels, zero),
            _render_numbers(audits, panels),
            None if clouds is None else section("clouds", "Point clouds", clouds),
            _render_notes(audits),
            render_glossary(
                {
                    "audit",
                    *(found.name for audit in audits for group in audit.groups.values() for found in group.findings),
                }
            ),
        ),
        styles=["page.css", "advice.css", "training.css", "grouped.css"],
        scripts=["cloud.js", "gallery.js", "page.js", "copy.js"],
    )


def _check_audits(audits: Sequence[GroupedAudit]) -> None:
    if not 1 <= len(audits) <= HUES:
        raise ParameterError(f"{len(audits)} grouped audits were passed: a page needs 1 to {HUES}")
    columns = list(dict.fromkeys(audit.by for audit in audits))
    if len(columns) > 1:
        raise ParameterError(
            f"the audits are grouped by {' and by '.join(columns)}: a page needs audits grouped by the same column"
        )
    for audit in audits:
        if not audit.groups:
            raise TooFewRowsError(
                f"{audit.source} was grouped by {audit.by}, but none of the groups was audited: a page "
                "needs at least one"
            )


def _finding_names(audits: Sequence[GroupedAudit]) -> set[str]:
    return {found.name for audit in audits for group in audit.groups.values() for found in group.findings}


def _format_title(audits: Sequence[GroupedAudit]) -> str:
    return f"{join_words([audit.source for audit in audits])} by {audits[0].by}"


# heading


def _render_heading(audits: Sequence[GroupedAudit]) -> Markup:
    by, many = audits[0].by, len(audits)
    what = "an embedding space" if many == 1 else f"{spell_number(many)} embedding spaces"
    worst = max(audits, key=lambda audit: rank_group(audit, sort_groups(audit)[0][0]))
    headline, numbers = describe_worst_group(worst, with_source=many > 1)
    return render_heading(
        f"{what} by {by}",
        _format_title(audits),
        _format_size(audits[0]) if many == 1 else f"{many} sources",
        headline,
        tag("p", numbers, class_="reasons") if numbers else None,
        *(_render_summary(audit, letter if many > 1 else "") for letter, audit in zip(LETTERS, audits, strict=False)),
    )


def _rank_panel(panel: Panel, audits: Sequence[GroupedAudit]) -> tuple[int, ...]:
    """Return the number of groups with each verdict in a chart, the worst verdict first."""
    found = [
        verdict for audit in audits for trace in panel.judged_traces for verdict in audit.series(trace.finding).verdicts
    ]
    return found.count("bad"), int(found.count("look") > 0)


def _group_names(audits: Sequence[GroupedAudit]) -> list[str]:
    """Return the names of all groups: in their order, or the worst group first if they have no order."""
    names = list(dict.fromkeys(name for audit in audits for name in audit.groups))
    if all(audit.ordered for audit in audits):
        return names
    orders = [sort_groups(audit)[0] for audit in audits]
    return sorted(names, key=lambda name: min(order.index(name) for order in orders if name in order))


def _render_summary(audit: GroupedAudit, letter: str) -> Markup:
    """Return a summary of how the groups of one store differ, and of the findings that need attention."""
    sentences = describe_groups(audit, 2 if letter else 3)
    return tag(
        "div",
        tag("h2", f"{letter}: ", tag("bdi", audit.source)) if letter else None,
        tag("p", _format_size(audit), class_="size") if letter else None,
        tag("p", " ".join(sentences) or "Nothing could be measured.", class_="reasons"),
        _render_tally(audit),
        class_="summary",
    )


def _format_size(audit: GroupedAudit) -> str:
    counts = [group.n for group in audit.groups.values()]
    widths = sorted({group.d for group in audit.groups.values()})
    rows = f"{counts[0]:,}" if len(set(counts)) == 1 else f"from {min(counts):,} to {max(counts):,}"
    each = " each" if len(counts) > 1 else ""
    groups = f"{len(counts)} {plural_group_noun(audit) if len(counts) > 1 else group_noun(audit.by)}"
    rest = f" · {audit.left_out:,} other vectors left out" if audit.left_out else ""
    return f"{groups} · {rows} vectors{each} × {' or '.join(f'{d:,}' for d in widths)} dimensions{rest}"


def _render_tally(audit: GroupedAudit) -> Markup:
    """Return the findings with a verdict other than "ok", and the number of groups for each."""
    entries = []
    for verdict in reversed(VERDICTS[1:]):
        where: dict[str, list[str]] = {}
        for name, group in audit.groups.items():
            for finding in group.findings:
                if finding.verdict == verdict:
                    where.setdefault(finding.title, []).append(name)
        if where:
            parts = [f"{title}{_describe_location(audit, names)}" for title, names in where.items()]
            label = tag("b", tag("span", SYMBOLS[verdict], aria_hidden="true"), f" {VERDICT_LABELS[verdict]}")
            entries.append(tag("li", label, tag("span", ", ".join(parts)), class_=verdict))
    if not entries:
        return tag("p", "No finding needs attention in any group.", class_="size")
    return tag("ul", *entries, class_="tally")


def _describe_location(audit: GroupedAudit, names: Sequence[str]) -> str:
    if len(audit.groups) == 1:
        return ""
    if len(names) == 1:
        return f" ({format_group_name(audit, names[0])})"
    every = "both" if len(names) == 2 else f"all {len(names)}"
    return f" ({every if len(names) == len(audit.groups) else f'{len(names)} of {len(audit.groups)}'})"


# charts


def _choose_axis(audits: Sequence[GroupedAudit]) -> GroupAxis:
    """Return the axis of the groups: their numbers, their relative depth in the model, or their names."""
    by, names = audits[0].by, _group_names(audits)
    if not all(audit.ordered for audit in audits):
        return GroupAxis(Scale(0, len(names) - 1), by, None, row_names=names)
    if not _are_all_numeric(audits):
        step = max(1, math.ceil((len(names) - 1) / (_MAX_TICKS - 1)))
        ticks = [
            (float(i), names[i] if len(names[i]) < 14 else names[i][:12] + "…") for i in range(0, len(names), step)
        ]
        return GroupAxis(Scale(0, len(names) - 1), by, ticks)
    places = np.concatenate([_group_positions(audit, audits) for audit in audits])
    name = "relative depth (1: last layer)" if _is_relative_depth(audits) else by
    return GroupAxis(Scale(float(places.min()), float(places.max())), name, _round_ticks(places))


def _round_ticks(places: np.ndarray) -> list[tuple[float, str]]:
    scale = Scale(float(places.min()), float(places.max()))
    whole = bool((places == np.rint(places)).all()) and scale.high - scale.low >= 1
    return [(tick, format_tick(tick)) for tick in scale.ticks(6) if not whole or tick == round(tick)]


def _are_all_numeric(audits: Sequence[GroupedAudit]) -> bool:
    return all(map(has_numeric_groups, audits))


def _is_relative_depth(audits: Sequence[GroupedAudit]) -> bool:
    """Return whether the axis must show relative depth because the models have different depths."""
    return audits[0].by == "layer" and len({max(map(float, audit.values.values())) for audit in audits}) > 1


def _group_positions(audit: GroupedAudit, audits: Sequence[GroupedAudit]) -> np.ndarray:
    if _are_all_numeric(audits):
        values = np.asarray([float(audit.values[name]) for name in audit.groups])
        return values / max(float(values.max()), 1e-300) if _is_relative_depth(audits) else values
    names = _group_names(audits)
    return np.asarray([float(names.index(name)) for name in audit.groups])


def _render_charts(
    audits: Sequence[GroupedAudit], axis: GroupAxis, panels: Sequence[Panel], zero: Sequence[str]
) -> Section:
    figures = []
    for panel in panels:
        curves = _make_curves(panel, audits)
        description = " ".join(
            _describe_curve(panel, trace, audit, audits) for audit in audits for trace in panel.judged_traces
        )
        chart = render_group_chart(panel.title, description, curves, axis, panel.form, powers=panel.is_log10)
        caption = tag("figcaption", _format_caption(panel, curves, audits))
        figures.append(tag("figure", tag("h3", panel.title), chart, caption))
    return section(
        "courses",
        f"Findings by {group_noun(audits[0].by)}",
        _render_legend(audits, lines=not axis.row_names),
        tag(
            "div",
            *figures,
            class_="figures trios courses" + " lettered" * (len(audits) > 1) + " by-name" * bool(axis.row_names),
        ),
        _render_zero_note(zero),
    )


def _render_zero_note(zero: Sequence[str]) -> Markup | None:
    words = f"These findings have no chart, because all their values are 0: {', '.join(zero)}."
    return tag("p", words, class_="hint") if zero else None


def _render_legend(audits: Sequence[GroupedAudit], *, lines: bool) -> Markup:
    """Return the legend of all charts: stores, verdicts, interval and reference."""
    signs = [
        tag(
            "li",
            tag("svg", draw_mark(verdict, "50%", "50%", style="hue-0"), class_="sign", aria_hidden="true"),
            VERDICT_LABELS[verdict],
        )
        for verdict in VERDICTS
    ]
    interval = f"{'band' if lines else 'bar'}: {format_confidence(audits[0].settings.confidence)} interval"
    if len(audits) > 1 and not lines:
        interval += f"; {LETTERS[0]} is on top in each row"
    stores = None
    if len(audits) > 1:
        stores = render_legend(*((f"line hue-{i}", f"{LETTERS[i]}: {a.source}") for i, a in enumerate(audits)))
    return join_markup(
        stores,
        tag(
            "ul",
            *signs,
            tag("li", interval),
            render_legend_entry("line null dotted", "random data of the same size"),
            class_="key",
        ),
    )


def _make_curves(panel: Panel, audits: Sequence[GroupedAudit]) -> list[GroupCurve]:
    curves = [_make_curve(panel, trace, audit, i, audits) for i, audit in enumerate(audits) for trace in panel.traces]
    return [curve for curve in curves if np.isfinite(curve.estimates).any()]


def _make_curve(panel: Panel, trace: Trace, audit: GroupedAudit, i: int, audits: Sequence[GroupedAudit]) -> GroupCurve:
    series = audit.series(trace.finding)
    judged = trace in panel.judged_traces
    empty = np.full(len(series.names), math.nan)
    hue = i if len(audits) > 1 else [each.finding for each in panel.judged_traces].index(trace.finding)
    bounds = [series.low, series.high, series.null] if judged else [empty, empty, empty]
    if panel.is_log10:
        bounds = [np.log10(np.where(each > 0, each, math.nan)) for each in bounds]
    whose = f"{audit.source}, " if len(audits) > 1 else ""
    what = f", {trace.name}" if len(panel.traces) > 1 else ""
    low, high, null = bounds if trace.null else [*bounds[:2], empty]
    return GroupCurve(
        name=trace.name,
        style=f"hue-{hue}" + ("" if judged else " dashed"),
        positions=_group_positions(audit, audits),
        group_names=[f"{whose}{format_group_name(audit, name)}{what}" for name in audit.groups],
        estimates=trace.numbers(audit),
        low=low,
        high=high,
        verdicts=series.verdicts.tolist() if judged else [""] * len(series.names),
        null=null,
        letter=LETTERS[i] if len(audits) > 1 else "",
    )


def _describe_curve(panel: Panel, trace: Trace, audit: GroupedAudit, audits: Sequence[GroupedAudit]) -> str:
    """Return a description of a curve for readers who cannot see it."""
    words = f"{audit.source}: {trace.name}" if len(audits) > 1 else trace.name
    return describe_series(capitalize(words), audit.series(trace.finding), audit, panel.form)


def _format_caption(panel: Panel, curves: Sequence[GroupCurve], audits: Sequence[GroupedAudit]) -> str:
    """Return the caption of a chart, with the value for random data if it lies outside the chart."""
    words = panel.caption or _describe_range(panel.judged_traces[0], audits)
    if any("within_clusters" in trace.path for trace in panel.traces):
        words += " Dashed lines: the mean of each cluster is subtracted."
    outside = [
        f"{name} ({format_number(10**value if panel.is_log10 else value, panel.form)})"
        for name, value in find_offscale_values(curves)
    ]
    if outside:
        words += f" Outside this scale: {', '.join(outside)}."
    far = [10**each if panel.is_log10 else each for each in find_offscale_nulls(curves)]
    if far:
        ends = list(dict.fromkeys(format_number(each, panel.form) for each in (min(far), max(far))))
        words += f" For random data of the same size, the value is {' to '.join(ends)}, which is outside this scale."
    published = [
        format_group_name(audit, name)
        for audit in audits
        for name, group in audit.groups.items()
        if panel.judged_traces[0].finding == "isoscore"
        and "isoscore" in group
        and "published" in group["isoscore"].title
    ]
    if published:
        words += (
            f" In {', '.join(published)}, a few long rows account for most of the variance, so the published formula "
            "determines the verdict."
        )
    return words


def _describe_range(trace: Trace, audits: Sequence[GroupedAudit]) -> str:
    """Return the thresholds of a finding that has no caption of its own."""
    finding = next(g[trace.finding] for audit in audits for g in audit.groups.values() if trace.finding in g)
    return f"{capitalize(finding.range)}."


# numbers


def _render_numbers(audits: Sequence[GroupedAudit], panels: Sequence[Panel]) -> Section:
    traces = list(dict.fromkeys((trace.finding, panel.form) for panel in panels for trace in panel.judged_traces))
    tables = []
    for audit in audits:
        tables += [
            tag("h3", tag("bdi", audit.source)) if len(audits) > 1 else None,
            render_scrollable(_render_table(audit, traces), label=f"All numbers of {audit.source}"),
        ]
    lead = tag("p", ", ".join(f"{SYMBOLS[each]} {VERDICT_LABELS[each]}" for each in VERDICTS), class_="hint")
    return section("numbers", "All numbers", lead, *tables)


def _render_table(audit: GroupedAudit, traces: Sequence[tuple[str, str]]) -> Markup:
    titles: dict[str, str] = {}
    for group in audit.groups.values():
        titles |= {finding.name: finding.title for finding in group.findings}
    columns = [(name, form) for name, form in traces if name in titles]
    rows = []
    for name in _group_names([audit]):
        group = audit.groups[name]
        cells = [tag("td", f"{group.n:,}")]
        for column, form in columns:
            if column not in group:
                cells.append(tag("td", "–", title=group.skipped.get(column)))
                continue
            finding = group[column]
            verdict = tag(
                "span",
                SYMBOLS[finding.verdict],
                role="img",
                aria_label=VERDICT_LABELS[finding.verdict],
                class_=f"verdict-sign {finding.verdict}",
            )
            cells.append(tag("td", verdict, " ", format_number(finding.value, form), title=finding.interval or None))
        rows.append(tag("tr", tag("th", tag("bdi", name), scope="row", title=name), *cells))
    head = render_table_head(group_noun(audit.by), "vectors", *(titles[name] for name, _ in columns))
    return tag("table", head, tag("tbody", *rows), class_="trials by-group")


# notes


def _render_notes(audits: Sequence[GroupedAudit]) -> Section:
    return section(
        "notes",
        "How this was measured",
        *(
            join_markup(
                tag("h3", tag("bdi", audit.source)) if len(audits) > 1 else None,
                render_definition_list(*_measurement_facts(audit)),
            )
            for audit in audits
        ),
        _render_command(audits),
    )


def _render_command(audits: Sequence[GroupedAudit]) -> Markup | None:
    """Return the command that reproduces the page; None for several arrays, which no command puts on one page."""
    if len(audits) > 1 and not all(is_file(audit.source) for audit in audits):
        return None
    columns = [next(iter(audit.groups.values())).columns for audit in audits]
    sources, by = [audit.source for audit in audits], audits[0].by
    command = format_audit_command(sources, columns, audits[0].settings, by=by)
    return join_markup(tag("h3", "To reproduce"), render_code_block(command))


def _measurement_facts(audit: GroupedAudit) -> list[tuple[object, object]]:
    settings = audit.settings
    rows: list[tuple[object, object]] = [
        ("Groups", f"by “{audit.by}”; each group is audited separately"),
        (
            "Pairs of rows",
            f"all rows of a group, or a random sample of {settings.sample:,} rows if it has more "
            f"(seed {settings.seed})",
        ),
        ("Intervals", f"{format_confidence(settings.confidence)} confidence"),
        ("Neighbors", f"compared by {settings.metric}"),
    ]
    rows += [(f"Not measured: {name}", reason) for name, reason in audit.skipped.items()]
    if left_out := describe_left_out(audit):
        rows.append(("Left out", left_out))
    return rows


# notebooks


def render_notebook_page(grouped: GroupedAudit) -> str:
    """Return the most important findings of each group as a table for a notebook."""
    headlines = find_headlines([grouped])
    rows = (
        (tag("bdi", name), f"{audit.n:,}", *(format_group_value(audit.get(headline)) for headline in headlines))
        for name, audit in grouped.groups.items()
    )
    return render_notebook_table(
        [join_markup(tag("strong", tag("bdi", grouped.source)), f", by {grouped.by}")],
        (grouped.by, "rows", *(HEADLINES[name] for name in headlines)),
        rows,
        images=_draw_images(grouped),
        notes=describe_grouped_notes(grouped),
        align="right",
    )


_IMAGES = 4  # the charts that a notebook shows as images


def _draw_images(grouped: GroupedAudit) -> Iterator[Markup]:
    """Return the charts of the worst findings as images for a notebook; none if the groups have no order."""
    audits, axis = [grouped], _choose_axis([grouped])
    panels = sorted(choose_panels(audits)[0], key=lambda panel: _rank_panel(panel, audits), reverse=True)
    for panel in [] if axis.row_names or len(grouped) < 2 else panels[:_IMAGES]:
        words = " ".join(_describe_curve(panel, trace, grouped, audits) for trace in panel.judged_traces)
        format_value = tick_formatter(panel.form, panel.is_log10)
        yield render_chart_image(build_group_chart(panel.title, words, _make_curves(panel, audits), axis, format_value))
