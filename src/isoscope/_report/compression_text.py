"""The answer of `compress` as sentences, and as text for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from isoscope._core.errors import plural
from isoscope._report.narrate import format_confidence
from isoscope._report.terminal import Paragraph, to_plain_text
from isoscope.advising.task import PLURALS
from isoscope.compressing.decision import MOST_EXAMPLES

if TYPE_CHECKING:
    from isoscope.compressing.compression import Compression, CompressionTrial
    from isoscope.compressing.decision import Kept

_WIDTH = 80

KEPT_MARKS = {"keeps": "✓", "undecided": "?", "loses": "✗"}
KEPT_COLORS = {"keeps": "green", "undecided": "yellow", "loses": "red"}


def format_share(share: float) -> str:
    """Return a share as a percentage with one decimal.

    >>> format_share(0.9968), format_share(1.0)
    ('99.7%', '100.0%')
    """
    return f"{100 * share:.1f}%".replace("-", "−")


def format_bounds(kept: Kept, keep: float) -> str:
    """Return the bounds of a kept share in percent, with a second decimal if a bound would look equal to the goal."""
    goal = f"{100 * keep:.1f}"
    digits = 2 if goal in (f"{100 * kept.low:.1f}", f"{100 * kept.high:.1f}") else 1
    return f"[{100 * kept.low:.{digits}f}, {100 * kept.high:.{digits}f}]".replace("-", "−")


def format_goal(keep: float) -> str:
    """Return the share to keep as a percentage.

    >>> format_goal(0.99), format_goal(0.995)
    ('99%', '99.5%')
    """
    return f"{100 * keep:g}%"


def format_bytes(count: int) -> str:
    """Return a number of bytes with its noun.

    >>> format_bytes(1), format_bytes(1536)
    ('1 byte', '1,536 bytes')
    """
    return f"{count:,} {'byte' if count == 1 else 'bytes'}"


def compression_headline(result: Compression) -> str:
    """Return the answer in one sentence."""
    measure, goal = result.measures[result.measure], format_goal(result.settings.keep)
    if result.outcome == "none":
        return f"Nothing smaller keeps {goal} of {measure}."
    if result.chosen is None:
        return (
            f"{_format_examples(result)} are too few to decide whether anything smaller keeps {goal} of {measure}; "
            f"{_format_needed(result.needed)}."
        )
    choice, original = result.choice, result.original
    return (
        f"Store {format_bytes(choice.bytes)} per vector instead of {original.bytes:,} ({choice.name}), and keep at "
        f"least {goal} of {measure}."
    )


def compression_paragraph(result: Compression) -> str:
    """Return the answer and its evidence in a few sentences."""
    sentences = [compression_headline(result), *_describe_choice(result), *_describe_alternatives(result)]
    return " ".join(sentences)


def _describe_choice(result: Compression) -> list[str]:
    measure = result.measures[result.measure]
    if result.chosen is None:
        best = max(
            (trial for trial in result.trials[:-1] if not trial.oversampling or result.settings.rescore),
            key=lambda trial: (trial.whole or trial[result.measure]).share,
        )
        kept = best.whole or best[result.measure]
        return [
            f"{best.name} ({format_bytes(best.bytes)}) comes closest: it keeps {format_share(kept.share)} of {measure} "
            f"({_format_bound(kept)})."
        ]
    choice, kept = result.choice, result.choice.whole or result.choice[result.measure]
    where = f" on all {result.n:,} rows" if choice.whole else ""
    times = result.original.bytes / choice.bytes
    sentences = [
        f"That is {times:.3g} times smaller. It keeps {format_share(kept.share)} ({_format_bound(kept)}){where}, "
        f"measured on {_format_examples(result)}."
    ]
    if choice.oversampling:
        sentences.append(
            f"A search fetches {choice.oversampling} times as many results as needed and rescores them with the "
            f"original vectors, which stay stored ({choice.stored:,} bytes each, for example on disk)."
        )
    return sentences


def _describe_alternatives(result: Compression) -> list[str]:
    sentences = []
    rescored, unsettled = result.rescored_choice, result.open_question
    if rescored is not None:
        sentences.append(
            f"If the original vectors stay stored to rescore results ({rescored.stored:,} bytes each, for example on "
            f"disk), an index of {format_bytes(rescored.bytes)} per vector is enough: {rescored.name}."
        )
    if unsettled is not None and result.chosen is not None:
        kept = unsettled.whole or unsettled[result.measure]
        sentences.append(
            f"{unsettled.name} ({format_bytes(unsettled.bytes)}) may keep {format_goal(result.settings.keep)} too. "
            f"{_format_examples(result)} are too few to decide; {_format_needed(kept.needed)}."
        )
    return sentences


def _format_bound(kept: Kept) -> str:
    return f"95% lower bound {format_share(kept.low)}"


def _format_examples(result: Compression) -> str:
    return f"{result.examples:,} {PLURALS[result.example] if result.examples != 1 else result.example}"


def _format_needed(needed: int | None) -> str:
    return f"even {MOST_EXAMPLES:,} would not be enough" if needed is None else f"about {needed:,} would be enough"


def frontier(result: Compression) -> list[CompressionTrial]:
    """Return the candidates that no smaller one beats (with and without rescoring), the choice and the original."""
    best = {False: -1.0, True: -1.0}
    found = []
    for trial in sorted(result.trials, key=lambda each: (each.bytes, -each[result.measure].value)):
        rescored, value = bool(trial.oversampling), trial[result.measure].value
        if value > best[rescored] or trial in (result.choice, result.original):
            found.append(trial)
            best[rescored] = max(best[rescored], value)
    return found


def render_compression_text(result: Compression) -> str:
    """Return the answer as plain text for 80 columns."""
    return to_plain_text(render_compression(result), _WIDTH)


def render_compression(result: Compression) -> Group:
    """Return the answer for rich's console: the verdict, the frontier and the database settings."""
    layer = "" if result.settings.layer is None else f", layer {result.settings.layer}"
    headline = compression_headline(result)
    reasons = result.paragraph.removeprefix(headline).strip()
    parts: list[RenderableType] = [
        Paragraph(headline, f"bold {'yellow' if result.chosen is None else 'green'}"),
        Text(),
        Text.assemble((result.source, "bold"), f"  {result.n:,} × {result.d}{layer}, by {result.settings.metric}"),
        Text(),
        _render_frontier(result),
        Paragraph(
            f"{KEPT_MARKS['keeps']} keeps {format_goal(result.settings.keep)}, {KEPT_MARKS['loses']} loses more, "
            f"{KEPT_MARKS['undecided']} undecided; all {format_confidence(result.settings.confidence)} bounds hold "
            "together",
            "dim",
        ),
    ]
    hidden = len(result.trials) - len(frontier(result))
    if hidden:
        others = f"{plural(hidden, 'larger or worse candidate')} {'is' if hidden == 1 else 'are'}"
        parts.append(Text(f"{others} on the page (--html) and in the JSON.", "dim"))
    if reasons:
        parts += [Text(), Paragraph(reasons)]
    parts += [Paragraph(note, "dim") for note in result.notes]
    parts += [Paragraph(f"{name} could not be fitted: {reason}", "dim") for name, reason in result.left_out.items()]
    if result.chosen is not None:
        parts += [Text(), *_render_settings(result)]
    return Group(*parts)


def _render_frontier(result: Compression) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    table.add_column(result.measures[result.measure], justify="right", no_wrap=True)
    table.add_column("kept, bounds", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for trial in frontier(result):
        kept, chosen = trial[result.measure], result.chosen is not None and trial is result.choice
        style = "bold" if chosen else ""
        bounds = f"{format_share(kept.share)} {format_bounds(kept, result.settings.keep)}"
        mark = Text(KEPT_MARKS[kept.verdict], KEPT_COLORS[kept.verdict])
        if trial.whole is not None:
            mark.append(f" all rows: {format_share(trial.whole.share)} ", "dim")
            mark.append(KEPT_MARKS[trial.whole.verdict], KEPT_COLORS[trial.whole.verdict])
        if trial is result.original:
            bounds, mark = "", Text()
        name = Text(("→ " if chosen else "  ") + trial.name, style)
        table.add_row(f"{trial.bytes:,}", name, Text(f"{kept.value:.3f}", style), bounds, mark)
    return table


def _render_settings(result: Compression) -> list[RenderableType]:
    parts: list[RenderableType] = [Text("Database settings", "bold")]
    for setting in result.database_settings:
        parts += [Text(), Text(setting.database, "bold")]
        if setting.difference:
            parts.append(Text(setting.difference, "dim"))
        parts += [Text(f"  {line}", no_wrap=True, overflow="ignore") for line in setting.lines]
    return parts
