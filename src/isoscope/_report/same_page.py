"""Render the answer of `isoscope same` as an HTML page, and as a notebook table."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from isoscope._core.errors import plural
from isoscope._report.commands import Call, changed_settings, name_source, render_reproduction
from isoscope._report.glossary import render_glossary
from isoscope._report.html import (
    document,
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
from isoscope._report.same_words import RELATION_NAMES, describe_reasons, same_headline, where_rows_are
from isoscope.auditing.finding import format_number
from isoscope.auditing.mixed_spaces import (
    CLEAR_GAP,
    LEAST_WIDTH,
    MAX_ALIGNMENT,
    MAX_EXCESS,
    MAX_MEAN_COSINE,
    MIN_ALIGNMENT,
    MIN_GAP,
    MIN_SHARE,
    MIN_WIDTH,
)
from isoscope.comparing.paired import KEPT_DISTANCES, KEPT_LOW, KEPT_SHARE
from isoscope.comparing.two_sample import CLEAR_AUC, LEVEL, TEST_ROWS

if TYPE_CHECKING:
    from isoscope._report.html import Markup, Section
    from isoscope.comparing.sameness import Sameness

_LISTED = 200  # ids
_SETTINGS = ("pair", "tolerance", "sample", "seed", "missing", "zeros", "layer")


def render_same_page(result: Sameness) -> str:
    """Return the answer and its evidence as a self-contained HTML document.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((60, 8))
    >>> render_same_page(isoscope.same(X, 2 * X, pair="rows"))[:15]
    '<!doctype html>'
    """
    title = f"Are {result.old} and {result.new} the same space?" if result.new else f"Is {result.old} one space?"
    return document(
        title,
        result.version,
        tag("a", "Skip to the evidence", href="#evidence", class_="skip"),
        _render_heading(result),
        render_main(
            _render_evidence(result),
            _render_changed(result),
            _render_notes(result),
            _render_commands(result),
            render_glossary({"mixed_spaces" if result.evidence == "within" else "same"}),
        ),
        styles=["page.css", "advice.css"],
        scripts=["copy.js"],
    )


def _render_heading(result: Sameness) -> Markup:
    sizes = [f"{result.n_old:,} vectors × {result.d_old:,} dimensions"]
    names = result.old
    if result.new:
        sizes.append(f"{result.n_new:,} × {result.d_new:,}")
        names = f"{result.old} and {result.new}"
    return render_heading(
        "is this still the same space?",
        names,
        " and ".join(sizes) + f" · {_describe_evidence(result)}",
        same_headline(result),
        tag("p", describe_reasons(result), class_="reasons"),
    )


def _describe_evidence(result: Sameness) -> str:
    return {
        "pairs": _count(result.compared, "matched row"),
        "rows": f"{_count(result.compared, 'unmatched row')}{where_rows_are(result)}",
        "sketches": "means and covariances",
        "dimensions": "the number of dimensions",
        "within": _count(result.compared, "row"),
    }[result.evidence]


def _count(count: int, noun: str) -> str:
    """Return a count with separated thousands and its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _render_evidence(result: Sameness) -> Section:
    parts: list[Markup] = []
    if result.fits:
        parts.append(render_scrollable(_render_fits(result), labeled_by="evidence-title"))
    if result.tests:
        parts.append(render_scrollable(_render_tests(result), labeled_by="evidence-title"))
    facts = _list_facts(result)
    if facts:
        parts.append(render_definition_list(*facts))
    if not parts:
        parts.append(tag("p", "The answer needs no further numbers."))
    return section("evidence", "Evidence", *parts)


def _render_fits(result: Sameness) -> Markup:
    head = render_table_head("explained by", "of the rows", "95% interval", "median residual")
    rows = [
        tag(
            "tr",
            tag("th", RELATION_NAMES[fit.relation], scope="row"),
            tag("td", format_number(fit.kept, "share")),
            tag("td", f"{format_number(fit.low, 'share')} … {format_number(fit.high, 'share')}"),
            tag("td", format_number(fit.residual, "power")),
            class_="chosen" if fit.relation == result.decided_by else None,
        )
        for fit in result.fits
    ]
    return tag("table", head, tag("tbody", *rows), class_="trials")


def _render_tests(result: Sameness) -> Markup:
    head = render_table_head("test", "value", "limit", "p-value", "finds a difference")
    rows = [
        tag(
            "tr",
            tag("th", test.title, scope="row"),
            tag("td", format_number(test.value, "power")),
            tag("td", format_number(test.limit, "power")),
            tag("td", "–" if test.p_value is None else format_number(test.p_value, "power")),
            tag("td", "yes" if test.rejects else "no"),
            class_="chosen" if test.name == result.decided_by else None,
        )
        for test in result.tests
    ]
    return tag("table", head, tag("tbody", *rows), class_="trials")


def _list_facts(result: Sameness) -> list[tuple[object, object]]:
    facts: list[tuple[object, object]] = []
    if result.cosines is not None:
        low, middle, high = (format_number(each) for each in result.cosines)
        facts.append(("Cosine of matched rows", f"median {middle}; 98% are between {low} and {high}"))
    if result.neighbors is not None:
        facts.append(("Nearest neighbors in common", f"{10 * result.neighbors:.1f} of 10 on average"))
    if result.cka is not None:
        facts.append(("CKA", f"{format_number(result.cka)} (1 means equal up to a rotation and a factor)"))
    if result.auc is not None and result.auc_low is not None and result.auc_high is not None:
        facts.append(
            (
                "AUC of a classifier",
                f"{result.auc:.3f}, 95% interval {result.auc_low:.3f} to {result.auc_high:.3f}; 0.5 is chance",
            )
        )
    facts += [(_DETAILS[name], format_number(value)) for name, value in result.details.items() if name in _DETAILS]
    return facts


_DETAILS = {
    "gap": "Gap between the two parts, as a share of the distance of their means",
    "alignment": "Correlation of their covariances",
    "excess": "Excess of the inner product of their covariances over random orientation",
    "cosine_of_means": "Cosine of their means",
    "width": "Width: variance of the smaller part, relative to the larger one",
}


def _render_changed(result: Sameness) -> Section | None:
    if not result.changed:
        return None
    title = "Rows of the second space" if result.answer == "mixed" else "Rows that moved"
    more = f" and {result.n_changed - _LISTED:,} more" if result.n_changed > _LISTED else ""
    items = [tag("bdi", each) for each in result.changed[:_LISTED]]
    return section("changed", title, tag("p", f"{plural(result.n_changed, 'row')}: ", *_separate(items), more))


def _separate(items: list[Markup]) -> list[object]:
    return [part for i, item in enumerate(items) for part in ((", ", item) if i else (item,))]


def _render_notes(result: Sameness) -> Section:
    rows: list[tuple[object, object]] = []
    if result.evidence == "pairs":
        rows += [
            (
                "Rule",
                f"The simplest transformation that explains at least {KEPT_SHARE:.0%} of the rows within the tolerance "
                f"({KEPT_DISTANCES:.0%} for a rotation), unless a more complex one has a much smaller residual. The "
                f"lower end of the 95% interval must be at least {KEPT_LOW:.0%}; otherwise the question is undecided.",
            ),
            (
                "Tolerance",
                f"{result.details.get('tolerance', result.settings.tolerance):.2g} of the spread, which is the "
                "median distance of the new vectors from their median. Rounding to 8 bits moves vectors by "
                "about 0.01.",
            ),
            (
                "Held out",
                "The factor and the shift are fitted to one half of the rows and checked on the other. A rotation is "
                "detected by the distances between rows, which it keeps up to a factor.",
            ),
        ]
    if result.evidence == "rows":
        rows += [
            (
                "Rule",
                "The sides differ if one of three permutation tests finds a difference. Together they raise a "
                f"false alarm in at most {LEVEL:.0%} of cases. The answer is undecided if there are too few rows to "
                f"detect an AUC of {CLEAR_AUC:g}, which a changed model exceeds.",
            ),
            ("Rows", f"A random sample of at most {TEST_ROWS:,} rows of each side."),
        ]
    if result.evidence == "sketches":
        rows.append(
            ("Rule", f"The sides differ if their means or covariances differ. Nominal false-alarm rate: {LEVEL:.0%}.")
        )
    if result.evidence == "within":
        rows.append(
            (
                "Rule",
                "The rows are split into the two parts that are farthest apart. The parts are two spaces if the gap "
                f"is above {CLEAR_GAP:g} and the width above {LEAST_WIDTH:g}, or if the gap is above {MIN_GAP:g}, the "
                f"width above {MIN_WIDTH:g} and the correlation above {MIN_ALIGNMENT:g}. They are one space if the "
                "larger part has such a gap inside, because then the parts are clusters. Parts without a gap are two "
                f"spaces if the correlation is below {MAX_ALIGNMENT:g}, the excess below {MAX_EXCESS:g} and the cosine "
                "below "
                f"{MAX_MEAN_COSINE:g}. The smaller part must have more than {MIN_SHARE:.0%} of the rows.",
            )
        )
    rows.append(("Seed", result.settings.seed))
    rows += [("Note", note) for note in result.notes]
    return section("notes", "How this was decided", render_definition_list(*rows))


def _render_commands(result: Sameness) -> Section:
    sources: tuple[str, ...] = (name_source(result.old, "old"),)
    within = {"within": True} if result.evidence == "within" else {}
    if not within:
        sources += (name_source(result.new, "new"),)
    arguments = {**within, **result.given, **changed_settings(result.settings, _SETTINGS)}
    call = Call("same", sources, arguments)
    parts = render_reproduction(call, "result", "Reproduce this answer", page="same.html")
    if result.evidence in ("rows", "sketches"):
        canary = Call("canary", sources[1:]).to_shell()
        parts += [
            tag("h3", "Be sure next time"),
            tag("p", "A canary file keeps the vectors of fixed texts, which the next deployment can be compared with."),
            render_code_block(shlex.join([*canary, "-o", "canary.parquet"])),
        ]
    return section("commands", "Commands", *parts)


# notebooks


def render_notebook_page(result: Sameness) -> str:
    """Return the answer and its tests for a notebook."""
    lead = [tag("strong", same_headline(result)), describe_reasons(result)]
    if result.fits:
        names: list[object] = ["explained by", "of the rows", "median residual"]
        rows: list[list[object]] = [
            [RELATION_NAMES[fit.relation], format_number(fit.kept, "share"), format_number(fit.residual, "power")]
            for fit in result.fits
        ]
    else:
        names = ["test", "value", "limit", "p-value"]
        rows = [
            [
                test.title,
                format_number(test.value, "power"),
                format_number(test.limit, "power"),
                "–" if test.p_value is None else format_number(test.p_value, "power"),
            ]
            for test in result.tests
        ]
    return render_notebook_table(lead, names, rows, notes=result.notes)
