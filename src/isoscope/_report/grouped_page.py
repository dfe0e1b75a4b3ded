"""The page of an audit by groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase as LETTERS
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import InputError
from isoscope._report.audit_page import interleave_separators, spell_number
from isoscope._report.cards import SYMBOLS, VERDICT_LABELS
from isoscope._report.cloud import HUES
from isoscope._report.gallery import render_gallery
from isoscope._report.html import document, join_markup, render_definition_list, section, tag
from isoscope._report.line_chart import Axis, GroupCurve, draw_group_chart, draw_verdict_mark, find_offscale_nulls
from isoscope._report.narrate import (
    describe_groups,
    describe_series,
    format_group_name,
    group_noun,
    has_numeric_groups,
    plural_group_noun,
)
from isoscope._report.svg import Scale, render_legend, render_legend_entry
from isoscope.auditing.finding import VERDICTS, format_number

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.grouped import GroupedAudit


DetailPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Trace:
    """One measurement along the groups: a finding, or one of its details."""

    finding: str
    name: str
    path: DetailPath = ()
    null: bool = True
    """Whether what a cloud without structure has is worth drawing."""
    alone: tuple[str, str] = ("", "")
    """The title and the caption of a chart that has no other measurement."""

    def numbers(self, audit: GroupedAudit) -> np.ndarray:
        """Its values, NaN where a group has none."""
        return audit.detail(self.finding, *self.path) if self.path else audit.series(self.finding).estimates


@dataclass(frozen=True)
class Panel:
    """What is drawn in one chart, and what to see in it."""

    title: str
    caption: str
    traces: tuple[Trace, ...]
    """First what is judged, then its details, which are dashed."""
    form: str = "number"
    is_log10: bool = False
    """Whether the numbers are powers of ten."""

    @property
    def judged_traces(self) -> list[Trace]:
        """What is judged."""
        return [trace for trace in self.traces if not trace.path or self.is_log10]


_PANELS = (
    Panel(
        "S_intra and S_inter",
        "The mean cosine of tokens of one type and of different types. The gap between them is what a word keeps of "
        "itself across contexts.",
        (
            Trace(
                "intra_type",
                "one type (S_intra)",
                null=False,  # it is the other line
                alone=("S_intra", "The mean cosine of tokens of one type."),
            ),
            Trace(
                "inter_type",
                "different types (S_inter)",
                alone=("S_inter", "The mean cosine of tokens of different types: the lower, the wider apart."),
            ),
            Trace("intra_type", "one type, inside clusters", ("within_clusters",)),
            Trace("inter_type", "different types, inside clusters", ("within_clusters",)),
        ),
    ),
    Panel(
        "Mean cosine",
        "Of all pairs of vectors: near 1 they all point one way.",
        (Trace("mean_cosine", "as stored"), Trace("mean_cosine", "mean subtracted", ("after_centring",))),
    ),
    Panel(
        "Anisotropy",
        "The first direction's share of all squared lengths, and of the variance once the mean is subtracted.",
        (Trace("anisotropy", "as stored"), Trace("anisotropy", "mean subtracted", ("centred", 0))),
        "share",
    ),
    Panel(
        "IsoScore",
        "How evenly the variance fills the dimensions: 0 is a line, 1 a ball.",
        (Trace("isoscore", "unbiased"), Trace("isoscore", "as published", ("as_published",))),
    ),
    Panel(
        "Intrinsic dimension",
        "Along how many directions the neighbours of a vector spread, by many neighbours (LID) and by two (TwoNN).",
        (
            Trace(
                "intrinsic_dimension",
                "LID",
                alone=("Local dimension (LID)", "Along how many directions the neighbours of a vector spread."),
            ),
            Trace(
                "two_nn",
                "TwoNN",
                alone=("Dimension (TwoNN)", "In how many dimensions a vector moves, by its two nearest neighbours."),
            ),
        ),
    ),
    Panel(
        "Effective rank",
        "How many dimensions the variance fills in all.",
        (Trace("effective_rank", "effective rank"),),
    ),
    Panel(
        "Partition isotropy",
        "The least total weight that any direction sees by the greatest, on a scale of powers of ten.",
        (Trace("partition_isotropy", "partition isotropy", ("log10",)),),
        "power",
        is_log10=True,
    ),
    Panel(
        "Hubness",
        "The share of vectors that are in no other's list of nearest neighbours.",
        (Trace("hubness", "in no list"),),
        "share",
    ),
    Panel(
        "Silhouette",
        "How far apart groups of vectors are: 1 apart, 0 overlapping.",
        (
            Trace(
                "clusters",
                "of the best clusters",
                alone=("Silhouette of the best clusters", "How far apart they are: 1 apart, 0 overlapping."),
            ),
            Trace(
                "labels",
                "of the labels",
                alone=("Silhouette of the labels", "How far apart they are: 1 apart, 0 overlapping."),
            ),
        ),
    ),
    Panel(
        "Rogue dimensions",
        "The largest coordinates' share of every vector's squared length.",
        (Trace("rogue_dimensions", "largest coordinates"),),
        "share",
    ),
    Panel(
        "Frequency in the first directions",
        "The share of their variance, and of all variance, that a row's frequency explains.",
        (Trace("frequency", "first directions"), Trace("frequency", "all", ("of_all_variance",))),
        "share",
    ),
    Panel(
        "Labels in the first directions",
        "The share of their variance, and of all variance, that lies between the labels.",
        (Trace("label_conflict", "first directions"), Trace("label_conflict", "all", ("of_all_variance",))),
        "share",
    ),
    Panel(
        "Results by different metrics",
        "The share of a row's 10 nearest rows that another metric finds as well: 100% if all rows are equally long.",
        (Trace("norm_spread", "same top 10"),),
        "share",
    ),
    Panel(
        "Duplicate rows",
        "The share of rows that copy an earlier one.",
        (Trace("duplicates", "copies"),),
        "share",
    ),
    Panel(
        "Near-duplicate rows",
        "The share of rows that nearly repeat another row.",
        (Trace("near_duplicates", "near-duplicates"),),
        "share",
    ),
)


def choose_panels(audits: Sequence[GroupedAudit]) -> tuple[list[Panel], list[str]]:
    """The charts for which there are numbers, and the titles of findings that are 0 in all groups.

    With several audits a chart has one judged measurement, and a line for each audit.
    """
    known = {trace.finding for panel in _PANELS for trace in panel.traces}
    titles = _first_findings(audits)
    others = [
        Panel(finding.title, "", (Trace(name, finding.title),), finding.form)
        for name, finding in titles.items()
        if name not in known
    ]
    drawn, zero = [], []
    for panel in [*_PANELS, *others]:
        for part in _split_panel(panel) if len(audits) > 1 else [panel]:
            seen = _drop_unmeasured(part, audits)
            if seen is None:
                continue
            if all(np.nan_to_num(trace.numbers(audit)).any() == 0 for trace in seen.traces for audit in audits):
                zero += [titles[trace.finding].title for trace in seen.judged_traces]
            else:
                drawn.append(seen)
    return drawn, zero


def _first_findings(audits: Sequence[GroupedAudit]) -> dict[str, Finding]:
    """Each finding as the first group has it."""
    found: dict[str, Finding] = {}
    for audit in audits:
        for group in audit.groups.values():
            for finding in group.findings:
                found.setdefault(finding.name, finding)
    return found


def _split_panel(panel: Panel) -> Iterator[Panel]:
    """A panel for each judged measurement, with its own details."""
    if len(panel.judged_traces) == 1:
        yield panel
        return
    for trace in panel.judged_traces:
        yield replace(panel, traces=tuple(each for each in panel.traces if each.finding == trace.finding))


def _drop_unmeasured(panel: Panel, audits: Sequence[GroupedAudit]) -> Panel | None:
    """The panel with those measurements that there are."""
    there = tuple(t for t in panel.traces if any(np.isfinite(t.numbers(audit)).any() for audit in audits))
    seen = replace(panel, traces=there)
    if not seen.judged_traces:
        return None
    title, caption = seen.judged_traces[0].alone
    return replace(seen, title=title, caption=caption) if title and len(seen.judged_traces) == 1 else seen


_MAX_TICKS = 4  # names of ranges under a chart


def render_grouped_page(audits: Sequence[GroupedAudit]) -> str:
    """Audits by groups as a self-contained document: what changes in words, each measurement along the groups, clouds.

    Parameters
    ----------
    audits : sequence of GroupedAudit
        One, or several stores, which may be models, to compare: a line for each.

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
    drawn, zero = choose_panels(audits)
    clouds = render_gallery(audits)
    return document(
        _format_title(audits),
        audits[0].version,
        tag("a", "Skip to the charts", href="#courses", class_="skip"),
        _render_heading(audits),
        tag(
            "main",
            _render_charts(audits, axis, drawn, zero),
            _render_numbers(audits, drawn),
            None if clouds is None else section("clouds", "The clouds", clouds),
            _render_notes(audits),
        ),
        styles=["page.css", "advice.css", "training.css", "grouped.css"],
        scripts=["cloud.js", "gallery.js", "page.js"],
    )


def _check_audits(audits: Sequence[GroupedAudit]) -> None:
    if not 1 <= len(audits) <= HUES:
        raise InputError(f"{len(audits)} audits by groups were given: a page shows from 1 to {HUES}")
    columns = list(dict.fromkeys(audit.by for audit in audits))
    if len(columns) > 1:
        raise InputError(f"audits by {' and by '.join(columns)} were given: a page compares groups of one column")
    for audit in audits:
        if not audit.groups:
            raise InputError(f"{audit.source} has no group that was audited by {audit.by}: need one at least")


def _format_title(audits: Sequence[GroupedAudit]) -> str:
    return f"{''.join(interleave_separators([audit.source for audit in audits]))} by {audits[0].by}"


# what is said first


def _render_heading(audits: Sequence[GroupedAudit]) -> Markup:
    by, many = audits[0].by, len(audits)
    what = "an embedding space" if many == 1 else f"{spell_number(many)} embedding spaces"
    names = interleave_separators([audit.source for audit in audits])
    title = [tag("span", part, class_="and") if i % 2 else tag("bdi", part) for i, part in enumerate(names)]
    return tag(
        "header",
        tag("p", f"isoscope: {what} by {by}", class_="brand"),
        tag("h1", *title, tag("span", f" by {by}", class_="and")),
        *(_render_summary(audit, letter if many > 1 else "") for letter, audit in zip(LETTERS, audits, strict=False)),
    )


def _render_summary(audit: GroupedAudit, letter: str) -> Markup:
    """How one store's groups differ, and what is wrong with which."""
    said = describe_groups(audit, 2 if letter else 3)
    return tag(
        "div",
        tag("h2", f"{letter}: ", tag("bdi", audit.source)) if letter else None,
        tag("p", _format_size(audit), class_="size"),
        tag("p", " ".join(said) or "Nothing could be measured.", class_="reasons"),
        _render_tally(audit),
        class_="told",
    )


def _format_size(audit: GroupedAudit) -> str:
    counts = [group.n for group in audit.groups.values()]
    widths = sorted({group.d for group in audit.groups.values()})
    rows = f"{counts[0]:,}" if len(set(counts)) == 1 else f"from {min(counts):,} to {max(counts):,}"
    each = " each" if len(counts) > 1 else ""
    groups = f"{len(counts)} {plural_group_noun(audit) if len(counts) > 1 else group_noun(audit.by)}"
    return f"{groups} · {rows} vectors{each} × {' or '.join(f'{d:,}' for d in widths)} dimensions"


def _render_tally(audit: GroupedAudit) -> Markup:
    """Which findings are not well, in how many groups."""
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
        return tag("p", "Nothing stands out in any of them.", class_="size")
    return tag("ul", *entries, class_="tally")


def _describe_location(audit: GroupedAudit, names: Sequence[str]) -> str:
    if len(audit.groups) == 1:
        return ""
    if len(names) == 1:
        return f" ({format_group_name(audit, names[0])})"
    every = "both" if len(names) == 2 else f"all {len(names)}"
    return f" ({every if len(names) == len(audit.groups) else f'{len(names)} of {len(audit.groups)}'})"


# the charts


def _choose_axis(audits: Sequence[GroupedAudit]) -> Axis:
    """Where the groups stand: at their numbers, at their place in the model, or one after the other."""
    by = audits[0].by
    names = list(dict.fromkeys(name for audit in audits for name in audit.groups))
    if not all(audit.ordered for audit in audits):
        return Axis(Scale(0, len(names) - 1), by, None, rows=names)
    if not _are_all_numeric(audits):
        step = max(1, math.ceil((len(names) - 1) / (_MAX_TICKS - 1)))
        ticks = [
            (float(i), names[i] if len(names[i]) < 14 else names[i][:12] + "…") for i in range(0, len(names), step)
        ]
        return Axis(Scale(0, len(names) - 1), by, ticks)
    places = np.concatenate([_group_positions(audit, audits) for audit in audits])
    name = "depth (1: the last layer)" if _is_relative_depth(audits) else by
    return Axis(Scale(float(places.min()), float(places.max())), name, _round_ticks(places))


def _truncate_name(name: str) -> str:
    return name if len(name) < 14 else name[:12] + "…"


def _round_ticks(places: np.ndarray) -> list[tuple[float, str]]:
    scale = Scale(float(places.min()), float(places.max()))
    whole = bool((places == np.rint(places)).all()) and scale.high - scale.low > 1
    found = [tick for tick in scale.ticks(6) if not whole or tick == round(tick)]
    return [(tick, f"{tick:,.6g}".replace("-", "−")) for tick in found]


def _are_all_numeric(audits: Sequence[GroupedAudit]) -> bool:
    return all(map(has_numeric_groups, audits))


def _is_relative_depth(audits: Sequence[GroupedAudit]) -> bool:
    """Whether models of different depth share an axis."""
    return audits[0].by == "layer" and len({max(map(float, audit.values.values())) for audit in audits}) > 1


def _group_positions(audit: GroupedAudit, audits: Sequence[GroupedAudit]) -> np.ndarray:
    if _are_all_numeric(audits):
        values = np.asarray([float(audit.values[name]) for name in audit.groups])
        return values / max(float(values.max()), 1e-300) if _is_relative_depth(audits) else values
    names = list(dict.fromkeys(name for each in audits for name in each.groups))
    return np.asarray([float(names.index(name)) for name in audit.groups])


def _render_charts(audits: Sequence[GroupedAudit], axis: Axis, drawn: Sequence[Panel], zero: Sequence[str]) -> Markup:
    figures = []
    for panel in drawn:
        courses = [
            _make_curve(panel, trace, audit, i, audits) for i, audit in enumerate(audits) for trace in panel.traces
        ]
        courses = [course for course in courses if np.isfinite(course.estimates).any()]
        told = " ".join(
            _describe_curve(panel, trace, audit, audits) for audit in audits for trace in panel.judged_traces
        )
        chart = draw_group_chart(panel.title, told, courses, axis, panel.form, powers=panel.is_log10)
        figures.append(
            tag("figure", tag("h3", panel.title), chart, tag("figcaption", _format_caption(panel, courses, audits)))
        )
    nothing = f"0 wherever it was measured, and not drawn: {', '.join(zero)}." if zero else ""
    return section(
        "courses",
        f"Along the {plural_group_noun(audits[0])}",
        _render_legend(audits, lines=not axis.rows),
        tag(
            "div",
            *figures,
            class_="figures trios courses" + " lettered" * (len(audits) > 1) + " by-name" * bool(axis.rows),
        ),
        tag("p", nothing, class_="hint") if nothing else None,
    )


def _layout_classes(audits: Sequence[GroupedAudit], axis: Axis) -> list[str]:
    return ["lettered"] * (len(audits) > 1) + ["by-name"] * bool(axis.rows)


def _render_legend(audits: Sequence[GroupedAudit], *, lines: bool) -> Markup:
    """What the signs in the charts are."""
    signs = [
        tag(
            "li",
            tag("svg", draw_verdict_mark(verdict, "50%", "50%", "hue-0"), class_="sign", aria_hidden="true"),
            VERDICT_LABELS[verdict],
        )
        for verdict in VERDICTS
    ]
    confidence = f"{100 * audits[0].settings.confidence:g}%"
    interval = f"the {'band' if lines else 'bar'} is the {confidence} interval"
    if len(audits) > 1 and not lines:
        interval += f"; in each row {LETTERS[0]} is on top"
    stores = None
    if len(audits) > 1:
        stores = render_legend(*((f"line course hue-{i}", f"{LETTERS[i]}: {a.source}") for i, a in enumerate(audits)))
    return join_markup(
        stores,
        tag("ul", *signs, tag("li", interval), render_legend_entry("line null", "without structure"), class_="key"),
    )


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
        look=f"hue-{hue}" + ("" if judged else " dashed"),
        places=_group_positions(audit, audits),
        called=[f"{whose}{format_group_name(audit, name)}{what}" for name in audit.groups],
        estimates=trace.numbers(audit),
        low=low,
        high=high,
        verdicts=series.verdicts.tolist() if judged else [""] * len(series.names),
        null=null,
        letter=LETTERS[i] if len(audits) > 1 else "",
    )


def _describe_curve(panel: Panel, trace: Trace, audit: GroupedAudit, audits: Sequence[GroupedAudit]) -> str:
    """A course for those who cannot see it."""
    words = f"{audit.source}: {trace.name}" if len(audits) > 1 else trace.name
    return describe_series(words[:1].upper() + words[1:], audit.series(trace.finding), audit, panel.form)


def _format_caption(panel: Panel, courses: Sequence[GroupCurve], audits: Sequence[GroupedAudit]) -> str:
    """What to see, and what a cloud without structure has if that is too far away to be drawn."""
    words = panel.caption or _describe_range(panel.judged_traces[0], audits)
    if any("within_clusters" in trace.path for trace in panel.traces):
        words += " Dashed: once the mean of each cluster is subtracted."
    far = [10**each if panel.is_log10 else each for each in find_offscale_nulls(courses)]
    if far:
        ends = list(dict.fromkeys(format_number(each, panel.form) for each in (min(far), max(far))))
        words += f" Without structure, off the scale: {' to '.join(ends)}."
    published = [
        format_group_name(audit, name)
        for audit in audits
        for name, group in audit.groups.items()
        if panel.judged_traces[0].finding == "isoscore"
        and "isoscore" in group
        and "published" in group["isoscore"].title
    ]
    if published:
        words += f" Judged as published in {', '.join(published)}, where a few long rows carry the variance."
    return words


def _describe_range(trace: Trace, audits: Sequence[GroupedAudit]) -> str:
    """What a finding that has no caption of its own is judged by."""
    found = next(g[trace.finding] for audit in audits for g in audit.groups.values() if trace.finding in g)
    return f"{found.range[:1].upper()}{found.range[1:]}."


# the numbers


def _render_numbers(audits: Sequence[GroupedAudit], drawn: Sequence[Panel]) -> Markup:
    traces = list(dict.fromkeys((trace.finding, panel.form) for panel in drawn for trace in panel.judged_traces))
    tables = []
    for audit in audits:
        tables += [
            tag("h3", tag("bdi", audit.source)) if len(audits) > 1 else None,
            _render_scrollable(_render_table(audit, traces), f"All numbers of {audit.source}"),
        ]
    lead = tag("p", ", ".join(f"{SYMBOLS[each]} {VERDICT_LABELS[each]}" for each in VERDICTS), class_="hint")
    return section("numbers", "All numbers", lead, *tables)


def _render_scrollable(table: Markup, words: str) -> Markup:
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=words)


def _render_table(audit: GroupedAudit, traces: Sequence[tuple[str, str]]) -> Markup:
    titles: dict[str, str] = {}
    for group in audit.groups.values():
        titles |= {finding.name: finding.title for finding in group.findings}
    shown = [(name, form) for name, form in traces if name in titles]
    head = [tag("th", group_noun(audit.by), scope="col"), tag("th", "vectors", scope="col")]
    head += [tag("th", titles[name], scope="col") for name, _ in shown]
    rows = []
    for name, group in audit.groups.items():
        cells = [tag("td", f"{group.n:,}")]
        for finding, form in shown:
            if finding not in group:
                cells.append(tag("td", "–", title=group.skipped.get(finding)))
                continue
            found = group[finding]
            verdict = tag(
                "span",
                SYMBOLS[found.verdict],
                role="img",
                aria_label=VERDICT_LABELS[found.verdict],
                class_=f"verdict-sign {found.verdict}",
            )
            cells.append(tag("td", verdict, " ", format_number(found.value, form), title=found.interval or None))
        rows.append(tag("tr", tag("th", tag("bdi", name), scope="row", title=name), *cells))
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="trials by-group")


def _render_verdict_mark(verdict: str) -> Markup:
    return tag(
        "span", SYMBOLS[verdict], role="img", aria_label=VERDICT_LABELS[verdict], class_=f"verdict-sign {verdict}"
    )


# how it was done


def _render_notes(audits: Sequence[GroupedAudit]) -> Markup:
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
        tag("p", "What each number means, and how each range is derived: ", tag("code", "docs/findings.md"), "."),
    )


def _measurement_facts(audit: GroupedAudit) -> list[tuple[object, object]]:
    settings = audit.settings
    rows: list[tuple[object, object]] = [
        ("Groups", f"by “{audit.by}”, each audited as a space of its own"),
        (
            "Pairs of rows",
            f"all up to {settings.sample:,} rows of a group, a random sample of so many above; seed {settings.seed}",
        ),
        ("Intervals", f"{100 * settings.confidence:g}% confidence"),
        ("Neighbours", f"by {settings.metric}"),
    ]
    rows += [(f"Not measured: {name}", reason) for name, reason in audit.skipped.items()]
    if audit.left_out:
        rows.append(("Left out", f"{audit.left_out:,} rows that are in none of these groups"))
    return rows
