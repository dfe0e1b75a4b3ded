"""Render audits, grouped audits and advice as text for the terminal."""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from isoscope._core.errors import InputError
from isoscope._core.printable import escape_controls
from isoscope._report.grouped_panels import CLUSTER_VERDICT
from isoscope._report.grouped_text import describe_left_out, describe_worst_group
from isoscope._report.narrate import (
    advice_headline,
    describe_groups,
    describe_rule,
    format_confidence,
    format_interval,
    format_signed,
    is_label_free,
)
from isoscope._report.row_lists import render_worst_text
from isoscope.auditing.causes import remove_shape_note
from isoscope.auditing.compare import (
    UNSEEN_CHANGES,
    Change,
    align_findings,
    compare_findings,
    describe_comparison,
    describe_repair,
    describe_setting_differences,
    name_sources,
)
from isoscope.auditing.finding import VERDICTS, format_number, format_percentage
from isoscope.auditing.findings.evidence import ABOUT_SHAPE

if TYPE_CHECKING:
    from isoscope.advising.advise import Advice, Trial
    from isoscope.auditing.audit import Audit
    from isoscope.auditing.compare import Agreement, HeldOutComparison
    from isoscope.auditing.comparison import Comparison
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.grouped import GroupedAudit
    from isoscope.sketching.sketch import Sketch


MARKS = {"ok": "✓", "look": "!", "bad": "✗"}
_VERDICT_WORDS = {"bad": "bad", "look": "worth a look", "ok": "ok"}
COLORS = {"ok": "green", "look": "yellow", "bad": "red"}
CHANGE_STYLES = {"worse": "red", "better": "green", "moved": "yellow"}
_WIDTH = 100

_JOINT = "\ue000"
"""Placeholder for a no-break space, because rich also breaks lines at no-break spaces."""
_UNBREAKABLE = re.compile(
    r"`[^`]{1,40}`"  # commands
    r"|[\[(][^\[\]()]{1,24}[\])]"  # intervals and arguments
    r"|(?<=\d) of (?=\d)|(?<=\d) (?=[a-z×…])|(?<=[×…]) (?=[\d−])"  # numbers and their units
)


def render_text(audit: Audit) -> str:
    """Return the audit as plain text."""
    return to_plain_text(render_audit(audit))


def to_plain_text(content: RenderableType, width: int = _WIDTH) -> str:
    """Return the output of rich as plain text, without trailing spaces."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, highlight=False)
    console.print(EscapedControls(content), crop=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


class EscapedControls:
    """Content for rich with its control characters escaped; names and texts come from the data."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._content, options):
            yield segment if segment.control else segment._replace(text=escape_controls(segment.text))


class Paragraph:
    """Text for rich that is not broken inside brackets, or between a number and its unit."""

    def __init__(self, text: str | Text, style: str = "") -> None:
        self._text = Text(text, style) if isinstance(text, str) else text.copy()
        self._text.plain = _UNBREAKABLE.sub(lambda match: match[0].replace(" ", _JOINT), self._text.plain)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._text, options):
            yield segment._replace(text=segment.text.replace(_JOINT, " "))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._text)


def render_audit(audit: Audit, baseline: Audit | None = None) -> Group:
    """Return the audit for rich's console: the headline, the findings of each cause in full, and the others briefly."""
    causes = audit.causes
    parts: list[RenderableType] = [Paragraph(audit.headline, f"bold {COLORS[audit.verdict]}")]
    for i, cause in enumerate(causes):
        if i:
            parts.append(Paragraph(cause.sentence, "bold"))
        if cause.is_about_shape:
            parts.append(Paragraph(ABOUT_SHAPE))
        parts.append(Text())
        parts += [] if i else [_render_source(audit), Text()]
        parts += [_render_finding(finding, spelled_out=True) for finding in cause.findings]
    parts += [] if causes else [Text(), _render_source(audit), Text()]
    parts += [_render_finding(finding, spelled_out=False) for finding in audit.findings if finding.verdict == "ok"]
    parts += [Text(), _render_similarity(audit)]
    if audit.worst is not None:
        parts += [Text(), render_worst_text(audit.worst)]
    if audit.skipped:
        parts += [Text()] + [
            Paragraph(f"not measured: {name}, {reason}", "dim") for name, reason in audit.skipped.items()
        ]
    if baseline is not None:
        parts += [Text(), _render_changes(baseline, audit)]
    return Group(*parts)


def describe_verdicts(audit: Audit) -> str:
    """Return the number of findings with each verdict as text."""
    verdicts = [finding.verdict for finding in audit.findings]
    return ", ".join(f"{verdicts.count(v)} {_VERDICT_WORDS[v]}" for v in reversed(VERDICTS) if v in verdicts)


def _render_source(audit: Audit) -> Paragraph:
    text = Text.assemble(
        (audit.source, "bold"), f"  {audit.n:,} × {audit.d} {audit.dtype}, by {audit.settings.metric}  "
    )
    return Paragraph(text.append(describe_verdicts(audit), f"bold {COLORS[audit.verdict]}"))


def _render_finding(finding: Finding, *, spelled_out: bool) -> RenderableType:
    color = COLORS[finding.verdict]
    first = Text.assemble((f"{MARKS[finding.verdict]} {finding.verdict:<6}", color))
    value = Text.assemble((f"{finding.title}  ", "bold" if spelled_out else ""), finding.shown)
    if finding.interval:
        value.append(f"  [{finding.interval}]", "dim")
    value.append(f"  {finding.range}", "dim")
    if finding.sampled:
        value.append(f"  on {finding.rows:,} rows", "dim")
    if spelled_out:
        value.append(f"\n{remove_shape_note(finding.meaning)}\n")
        value.append("→ ", color)
        value.append(finding.advice)
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)  # rich before 14.3 lays out a fixed width differently
    table.add_column()
    table.add_row(first, Paragraph(value))
    return Padding(table, (0, 0, 1 if spelled_out else 0, 0))


def _render_similarity(audit: Audit) -> RenderableType:
    table = Table(title="What a cosine means here", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("cosine", justify="right")
    table.add_column("random pairs below it", justify="right")
    table.add_column("nearest neighbors below it", justify="right")
    for cosine, pairs, nearest in audit.similarity.table():
        if pairs > 0 or cosine == 0:
            table.add_row(
                f"{cosine:.2f}", format_percentage(pairs), "–" if nearest is None else format_percentage(nearest)
            )
    return table


def _render_changes(baseline: Audit, audit: Audit) -> RenderableType:
    parts: list[RenderableType] = [Text(f"Since {baseline.source} ({baseline.n:,} × {baseline.d})", "bold")]
    parts += [
        Text(f"the two audits differ: {difference}", "yellow")
        for difference in describe_setting_differences(baseline, audit)
    ]
    changes = [change for change in compare_findings(baseline, audit) if change.direction != "same"]
    parts += [Text(str(change), CHANGE_STYLES.get(change.trend, "")) for change in changes]
    if not changes:
        parts.append(Text("no finding has changed by more than its interval"))
    return Group(*parts, Paragraph(UNSEEN_CHANGES, "dim"))


def render_moments(sketch: Sketch, name: str) -> Group:
    """Return the measurements of a sketch as a table, without verdicts."""
    table = Table.grid(padding=(0, 2, 0, 0))
    shares: list[tuple[str, Callable[[], float], str]] = [
        ("IsoScore (as published)", sketch.isoscore, "number"),
        ("mean cosine", sketch.mean_cosine, "number"),
        ("leading direction of XᵀX", lambda: float(sketch.anisotropy(1)[0]), "share"),
        ("effective rank", sketch.effective_rank, "number"),
        ("participation ratio", sketch.participation_ratio, "number"),
        ("S_intra", sketch.intra_similarity, "number"),
        ("S_inter", sketch.inter_similarity, "number"),
        ("shortest vector", lambda: sketch.least_norm, "number"),
        ("longest vector", lambda: sketch.greatest_norm, "number"),
        ("zero vectors", lambda: sketch.zeros, "count"),
        ("rows with missing values, dropped", lambda: sketch.nonfinite, "count"),
        (
            "copies of other rows" if sketch.rows.exact else "copies of other rows (estimate)",
            lambda: sketch.duplicates,
            "count",
        ),
    ]
    for title, value, form in shares:
        try:
            table.add_row(title, Text(format_number(value(), form), justify="right"))
        except InputError:  # without types, or with too few rows for this measurement
            continue
    return Group(Text(f"{name}: {sketch.n:,} × {sketch.d}", "bold"), table)


def render_comparison_text(comparison: Comparison) -> str:
    """Return the audits of several sources side by side as plain text."""
    table = render_side_by_side(comparison.audits, comparison.neighbor_agreements, spaces=comparison.correspondence)
    return to_plain_text(table)


def render_side_by_side(
    audits: Sequence[Audit],
    agreements: Sequence[float | None],
    held_out: HeldOutComparison | None = None,
    spaces: Sequence[Sequence[Agreement]] = (),
) -> Group:
    """Return a table of several audits, with the share of neighbors that each space shares with the first.

    `spaces` compares the first space with each of the others. Two audits, before and after a repair, get an additional
    column: whether the repair made the finding better or worse.
    """
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    names = name_sources(audits, lettered=len(audits) > 2)
    for name in names:
        table.add_column(Text(name), overflow="fold")
    if held_out is not None:
        table.add_column("change")
    table.add_row("rows × dimensions", *(f"{audit.n:,} × {audit.d}" for audit in audits))
    reasons: list[RenderableType] = []
    unmarked = False  # whether a finding that became worse is still ok
    for title, findings in align_findings(audits):
        if held_out is None:
            table.add_row(title, *(_render_cell(finding) for finding in findings))
            continue
        change = Change("", title, findings[0], findings[1])
        lost = change.trend == "worse"
        table.add_row(
            title,
            _render_cell(findings[0]),
            _render_cell(findings[1], lost=lost),
            Text(change.trend, CHANGE_STYLES.get(change.trend, "")),
        )
        unmarked |= lost and findings[1] is not None and findings[1].verdict == "ok"
        reasons += [Paragraph(f"{title}, {change.trend}: {change.reason}.")] if change.reason else []
    shared = agreements[0] if len(audits) == 2 else None
    parts: list[RenderableType] = [Paragraph(describe_comparison(audits, shared), "bold"), Text()]
    parts.extend(
        Paragraph(f"{name}: {each.headline}", COLORS[each.verdict]) for name, each in zip(names, audits, strict=True)
    )
    parts += [Text(), table]
    if held_out is not None:
        headline = describe_repair(audits[0], audits[1], held_out, agreements[0])
        proof = f"This is not proof that {held_out.name} helps your task: test it with isoscope advise."
        parts = [Paragraph(headline, "bold"), Paragraph(proof), Text(), Paragraph(held_out.note), Text(), table]
        marks = [f"{MARKS[verdict]} {words}" for verdict, words in _VERDICT_WORDS.items()]
        parts.append(Text(", ".join([*marks, *(["▼ worse, but still ok"] if unmarked else [])]), "dim"))
        parts += [Text(), *reasons] if reasons else []
    for other, agreement in zip(audits[1:], agreements, strict=True):
        if agreement is not None and (len(audits) > 2 or held_out is not None):  # else, it is in the headline
            where = "the other" if len(audits) == 2 else other.source
            here = "one space" if len(audits) == 2 else audits[0].source
            share = format_number(agreement, "share")
            words = f"On average, {share} of a row's nearest neighbors in {here} are also nearest neighbors in {where}."
            parts += [Text(), Paragraph(words)]
    for other, measures in zip(audits[1:], spaces, strict=False):
        if measures:
            where = "" if len(audits) == 2 else f" ({audits[0].source} and {other.source})"
            listed = "; ".join(map(str, measures))
            parts.append(Paragraph(f"On {measures[0].rows:,} rows{where}: {listed}.", "dim"))
    return Group(*parts)


def _render_cell(finding: Finding | None, *, lost: bool = False) -> Paragraph:
    """Return a value with the mark of its verdict; a value that a repair made worse does not get the "ok" mark."""
    if finding is None:
        return Paragraph("–")
    mark, color = (
        ("▼", "red") if lost and finding.verdict == "ok" else (MARKS[finding.verdict], COLORS[finding.verdict])
    )
    text = Text.assemble((mark + " ", color), finding.shown)
    return Paragraph(text.append(f"  [{finding.interval}]", "dim") if finding.interval else text)


HEADLINES = {
    "mean_cosine": "mean cosine",
    "isoscore": "IsoScore",
    "anisotropy": "first share",
    "intrinsic_dimension": "local dim.",
    "clusters": "clusters",
    "labels": "labels",
    "inter_type": "S_inter",
    "intra_type": "S_intra",
    "frequency": "freq.",
}
"""The findings in the table of groups, with names short enough for a terminal of 80 columns."""

_GROUPED_WIDTH = 140
_MAX_NAME_WIDTH = 24


def render_grouped_text(grouped: GroupedAudit) -> str:
    """Return the table of a grouped audit as plain text."""
    return to_plain_text(render_grouped_audit(grouped), _GROUPED_WIDTH)


def render_grouped_audit(grouped: GroupedAudit) -> Group:
    """Return the table of a grouped audit for rich's console."""
    parts: list[RenderableType] = []
    if grouped.groups:
        headline, numbers = describe_worst_group(grouped)
        parts.append(Paragraph(headline, f"bold {COLORS[grouped.verdict]}"))
        evidence = " ".join(filter(None, [numbers, *describe_groups(grouped, 1)]))
        parts += [*([Paragraph(evidence)] if evidence else []), Text()]
    parts += [_render_grouped_headline(grouped), Text(), _GroupTables(grouped)]
    parts.append(Text(", ".join(f"{MARKS[verdict]} {words}" for verdict, words in _VERDICT_WORDS.items()), "dim"))
    return Group(*parts, *_render_notes(grouped))


PartT = TypeVar("PartT")


class _StackedTables(ABC, Generic[PartT]):
    """A wide table that is split into several tables, one below the other, if the console is too narrow.

    `parts` are its columns, or groups of columns that stay together; each table repeats the names of the rows.
    """

    def __init__(self, parts: list[PartT]):
        self.parts = parts

    @abstractmethod
    def _table(self, parts: list[PartT]) -> Table:
        """Return a table with these parts."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left = self.parts
        while left:
            fitting = next(
                (k for k in range(len(left), 1, -1) if self._width(console, options, left[:k]) <= options.max_width), 1
            )
            yield self._table(left[:fitting])
            left = left[fitting:]
            if left:
                yield Text()

    def _width(self, console: Console, options: ConsoleOptions, parts: list[PartT]) -> int:
        unlimited = options.update(max_width=10_000)
        return Measurement.get(console, unlimited, self._table(parts)).maximum


class _GroupTables(_StackedTables[str]):
    """The headline findings of each group."""

    def __init__(self, grouped: GroupedAudit):
        super().__init__(find_headlines([grouped]))
        self.grouped = grouped

    def _table(self, headlines: list[str]) -> Table:
        groups = self.grouped.groups
        width = min(max(map(len, [self.grouped.by, *groups])), _MAX_NAME_WIDTH)
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column(Text(self.grouped.by), overflow="fold", min_width=width, max_width=_MAX_NAME_WIDTH)
        table.add_column("rows", justify="right", no_wrap=True)
        for name in headlines:
            table.add_column(HEADLINES[name].replace(" ", "\n"), justify="right", no_wrap=True)
        for name, audit in groups.items():
            cells = (_render_group_cell(audit.get(headline)) for headline in headlines)
            table.add_row(Text(name), f"{audit.n:,}", *cells)
        return table


def render_grouped_side_by_side(many: Sequence[GroupedAudit]) -> Group:
    """Return several grouped audits: a table for each finding, with a row per group and a column per audit."""
    names = list(dict.fromkeys(name for grouped in many for name in grouped.groups))
    parts: list[RenderableType] = []
    for grouped in many:
        parts += [_render_grouped_headline(grouped), *_render_notes(grouped)]
    for headline in find_headlines(many):
        table = Table(
            title=HEADLINES[headline], title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
        )
        table.add_column(Text(many[0].by), overflow="fold")
        for grouped in many:
            table.add_column(Text(grouped.source), justify="right", overflow="fold")
        for name in names:
            audits = (grouped.groups.get(name) for grouped in many)
            table.add_row(
                Text(name), *(_render_group_cell(None if audit is None else audit.get(headline)) for audit in audits)
            )
        parts += [Text(), table]
    return Group(*parts)


def find_headlines(many: Sequence[GroupedAudit]) -> list[str]:
    """Return the headline findings that occur in at least one group."""
    audits = [audit for grouped in many for audit in grouped.groups.values()]
    return [name for name in HEADLINES if any(name in audit for audit in audits)]


def _render_grouped_headline(grouped: GroupedAudit) -> Text:
    number = f"{len(grouped)} groups" if len(grouped) != 1 else "1 group"
    sizes = {audit.d for audit in grouped.groups.values()}
    rows = sum(audit.n for audit in grouped.groups.values())
    about = f" by {grouped.by}: {number}, {rows:,} × {', '.join(map(str, sizes))}, "
    return Text.assemble(
        (grouped.source, "bold"), about, (f"worst verdict: {grouped.verdict}", f"bold {COLORS[grouped.verdict]}")
    )


def describe_grouped_notes(grouped: GroupedAudit) -> list[str]:
    """Return notes on unmeasured groups, on rows outside all groups, and on sampling."""
    notes = [f"not measured: {name} ({why})" for name, why in grouped.skipped.items()]
    if left_out := describe_left_out(grouped):
        notes.append(f"left out: {left_out}")
    clusters = [audit["clusters"] for audit in grouped.groups.values() if "clusters" in audit]
    if {"ok", "look"} <= {finding.verdict for finding in clusters if "range" in finding.details}:
        notes.append(f"clusters: {CLUSTER_VERDICT[:1].lower()}{CLUSTER_VERDICT[1:].rstrip('.')}")
    if any(audit.n > grouped.settings.sample for audit in grouped.groups.values()):
        notes.append(f"findings about pairs of rows use a sample of {grouped.settings.sample:,} rows per group")
    return notes


def _render_notes(grouped: GroupedAudit) -> list[Paragraph]:
    return [Paragraph(note, "dim") for note in describe_grouped_notes(grouped)]


def _render_group_cell(finding: Finding | None) -> Text:
    if finding is None:
        return Text("–")
    return Text.assemble(finding.shown, ("\u00a0" + MARKS[finding.verdict], COLORS[finding.verdict]))


def format_group_value(finding: Finding | None) -> str:
    """Return a value with the mark of its verdict, or a dash if there is no value."""
    return "–" if finding is None else f"{finding.shown} {MARKS[finding.verdict]}"


_ADVICE_WIDTH = 120
_Columns = list[tuple[str, Callable[[int, "Trial"], Text]]]  # headings and cells of columns that stay together

GAIN_MARKS = {"gain": "▲", "noise": "·", "loss": "▼"}
GAIN_COLORS = {"gain": "green", "noise": "dim", "loss": "red"}
SHAPE_NAMES = {"isoscore": "unbiased IsoScore", "mean_cosine": "mean cosine", "silhouette": "silhouette"}


def render_advice_text(advice: Advice) -> str:
    """Return the advice as plain text."""
    return to_plain_text(render_advice(advice), _ADVICE_WIDTH)


def render_advice(advice: Advice) -> Group:
    """Return the advice for rich's console: the verdict, the scores, the reasons and the rule."""
    headline = advice_headline(advice)
    reasons = advice.paragraph.removeprefix(headline).strip()
    explanation: list[RenderableType] = [Text(), Paragraph(reasons)] if reasons else []
    parts: list[RenderableType] = [
        Paragraph(headline + _describe_interval(advice), f"bold {_choose_color(advice)}".strip()),
        Text(),
        Text.assemble((advice.source, "bold"), f"  {describe_size(advice)}, by {advice.settings.metric}"),
        Text(),
        _AdviceTables(advice),
        Text(
            f"{GAIN_MARKS['gain']} significant gain, {GAIN_MARKS['loss']} significant loss, "
            f"{GAIN_MARKS['noise']} neither",
            "dim",
        ),
        *explanation,
        Text(),
        Paragraph(f"Rule: {describe_rule(advice)}", "dim"),
    ]
    parts += [Paragraph(note, "dim") for note in advice.notes]
    parts += [Paragraph(f"not tried: {name}: {reason}", "dim") for name, reason in advice.left_out.items()]
    return Group(*parts)


def _choose_color(advice: Advice) -> str:
    """Return the color of the verdict; weak and unstable advice is yellow."""
    if is_label_free(advice) or not advice.is_stable:
        return "yellow"
    return "" if advice.leaves_vectors_unchanged else "green"


def _describe_interval(advice: Advice) -> str:
    """Return a sentence with the gain of the recommended repair on all examples and its interval."""
    if advice.leaves_vectors_unchanged:
        return ""
    score = advice.choice[advice.measure]
    confidence = format_confidence(advice.settings.confidence)
    return f" The {confidence} interval of the gain is {format_signed(score.low)} to {format_signed(score.high)}."


def describe_size(advice: Advice) -> str:
    """Return the number of rows and dimensions, and the layer if the source contains several."""
    layer = "" if advice.settings.layer is None else f", layer {advice.settings.layer}"
    return f"{advice.n:,} × {advice.d}{layer}"


class _AdviceTables(_StackedTables[_Columns]):
    """The scores of all candidates, in one table if the console is wide enough.

    On a narrower console, the shape is left out first; then the measures are put into several tables.
    """

    def __init__(self, advice: Advice):
        self.advice = advice
        self._breaks_names = False
        confidence = f"gain, {format_confidence(advice.settings.confidence)} interval"
        decided: _Columns = [(_stack_words(advice.measures[advice.measure]), self._decided), (confidence, self._gain)]
        others: list[_Columns] = [
            [(_stack_words(advice.measures[name]), partial(self._score, name))]
            for name in advice.measures
            if name != advice.measure
        ]
        self._shapes: list[_Columns] = [
            [(_stack_words(words), partial(self._shape, name))]
            for name, words in SHAPE_NAMES.items()
            if name in advice.trials[0].shape
        ]
        super().__init__([decided, *others])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for parts in ([*self.parts, *self._shapes], self.parts):
            for self._breaks_names in (False, True):
                if self._width(console, options, parts) <= options.max_width:
                    yield self._table(parts)
                    return
        yield from super().__rich_console__(console, options)

    def _table(self, columns: list[_Columns]) -> Table:
        flat = [column for together in columns for column in together]
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        table.add_column("", overflow="fold")
        for heading, _ in flat:
            table.add_column(heading, justify="left" if heading.startswith("gain") else "right", no_wrap=True)
        for i, trial in enumerate(self.advice.trials):
            chosen = i == self.advice.chosen
            name = trial.name.replace(" → ", "\n  → ") if self._breaks_names else trial.name
            cell = Text(("→ " if chosen else "  ") + name, "bold" if chosen else "")
            table.add_row(cell, *(render(i, trial) for _, render in flat))
        return table

    def _decided(self, i: int, trial: Trial) -> Text:
        value = f"{trial[self.advice.measure].value:.3f}".replace("-", "−")
        return Text(value, "bold" if i == self.advice.chosen else "")

    def _gain(self, i: int, trial: Trial) -> Text:
        return _render_gain(trial, self.advice.measure) if i else Text("")

    def _score(self, name: str, i: int, trial: Trial) -> Text:
        return _render_score(trial, name, first=not i)

    def _shape(self, name: str, i: int, trial: Trial) -> Text:
        return Text(_format_shape(trial.shape.get(name)), "dim")


def _format_shape(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _stack_words(words: str) -> str:
    """Return a heading with one word per line."""
    return words.replace(" ", "\n")


def _render_gain(trial: Trial, measure: str) -> Text:
    score = trial[measure]
    color = GAIN_COLORS[score.verdict]
    return Text.assemble(
        (f"{GAIN_MARKS[score.verdict]} {format_signed(score.gain):>6} ", color), (format_interval(score), "dim")
    )


def _render_score(trial: Trial, measure: str, *, first: bool) -> Text:
    score = trial[measure]
    mark = " " if first else GAIN_MARKS[score.verdict]
    return Text.assemble(f"{score.value:.3f} ".replace("-", "−"), (mark, GAIN_COLORS[score.verdict]))
