"""Write the sentences that answer whether two sets of vectors come from the same space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isoscope._core.errors import plural
from isoscope.auditing.finding import format_number
from isoscope.auditing.mixed_spaces import CENTERED_PARTS
from isoscope.comparing.two_sample import CLEAR_AUC, TEST_ROWS

if TYPE_CHECKING:
    from isoscope.comparing.sameness import Sameness

RELATION_NAMES = {
    "same": "unchanged vectors",
    "rescaled": "one factor for all vectors",
    "shifted": "a factor and a shift",
    "rotated": "a rotation, up to a factor",
}
"""The transformations of matched rows, for tables."""
_TRANSFORMATIONS = {"rescaled": "rescaling", "shifted": "rescaling and shifting", "rotated": "rotating and rescaling"}

_CONSEQUENCES = {
    "rescaled": (
        "Cosines are the same as before. Inner products and Euclidean distances between old and new vectors are not: "
        "divide the new vectors by the factor before you mix them with old ones."
    ),
    "rotated": (
        "Searches by Euclidean distance within the new vectors find the same rows as before, but old and new vectors "
        "must not be mixed: re-embed the whole index, or rotate it."
    ),
    "different": "Do not mix the two: embed queries and all rows of an index with the same model.",
    "mixed": (
        "A search compares vectors that are not comparable. Embed these rows again with the model of the other rows. "
        "They do not look like a topic of the same model."
    ),
}


def same_headline(result: Sameness) -> str:
    """Return the answer in one sentence."""
    old, new = _short_names(result)
    if result.answer == "mixed":
        return f"{old} holds vectors of two spaces: about {_format_share(result)} of its rows come from the second one."
    if result.answer == "undecided":
        return _undecided(result)
    if result.evidence == "within":
        return f"All rows of {old} seem to come from one space."
    if result.decided_by == "directions":
        return f"{new} has the directions of {old}, but other lengths."
    factor = _has_factor(result)
    like = "is" if result.evidence == "pairs" else "looks like"
    return {
        "same": f"{new} and {old} are the same space."
        if result.evidence == "pairs"
        else f"No difference between {old} and {new} was found.",
        "rescaled": f"{new} {like} {old} multiplied by {_format_factor(result)}.",
        "shifted": f"{new} {like} {old} {_multiplied(result)}moved by a constant vector.",
        "rotated": f"{new} is a rotation of {old}" + (f", multiplied by {_format_factor(result)}." if factor else "."),
        "different": f"{new} is not the same space as {old}."
        if result.evidence in ("pairs", "dimensions")
        else f"{new} differs from {old}.",
    }[result.answer]


def _has_factor(result: Sameness) -> bool:
    return abs(result.scale - 1) >= 1e-4


def _format_factor(result: Sameness) -> str:
    digits = format_number(result.scale)
    return digits if float(digits.replace(",", "")) != 1 else f"{result.scale:.4f}"


def _multiplied(result: Sameness) -> str:
    return f"multiplied by {_format_factor(result)} and " if _has_factor(result) else ""


def _format_share(result: Sameness) -> str:
    return format_number(result.n_changed / max(result.compared, 1), "share")


def _undecided(result: Sameness) -> str:
    is_one_set = result.evidence in ("pairs", "within")
    unit = "matched row" if result.evidence == "pairs" else "row"
    text = f"This cannot be decided with {plural(result.compared, unit)}{'' if is_one_set else where_rows_are(result)}"
    if result.decided_by == "broken_rows":
        return "This cannot be decided from the sketches, because a few rows hold most of the variance."
    if result.decided_by == "centered":
        return f"This cannot be decided, because {CENTERED_PARTS}. Examine the vectors before they are centered."
    if result.enough is None:
        return f"{text}."
    if is_one_set:
        return f"{text}; about {result.enough:,} would be enough."
    each = "" if text.endswith(" on each side") else " on each side"
    return f"{text}; about {result.enough:,}{each} would be enough."


def where_rows_are(result: Sameness) -> str:
    """Return the words for the side that has as many unmatched rows as were compared."""
    is_equal = result.n_old == result.n_new or result.compared == min(TEST_ROWS, result.settings.sample)
    return " on each side" if is_equal else " on the smaller side"


def same_paragraph(result: Sameness) -> str:
    """Return the answer, its reasons and its consequence in a few sentences."""
    return " ".join(filter(None, [same_headline(result), describe_reasons(result)]))


def describe_reasons(result: Sameness) -> str:
    """Return the reasons for the answer and its consequence, without the headline."""
    reasons = {
        "dimensions": _describe_dimensions,
        "pairs": _describe_pairs,
        "rows": _describe_rows,
        "sketches": _describe_sketches,
        "within": _describe_within,
    }[result.evidence](result)
    consequence = _describe_shift(result) if result.answer == "shifted" else _CONSEQUENCES.get(result.answer, "")
    if result.decided_by in ("old_constant", "new_constant"):
        return _describe_constant(result)
    if result.decided_by == "directions":
        consequence = (
            "Cosines are the same as before. Inner products and Euclidean distances are not: scale old and new vectors "
            "to the same length before you mix them."
        )
    if result.answer == "different" and result.evidence in ("rows", "sketches"):
        consequence = "Either the model or the content changed. Do not mix the two before you know which."
    return " ".join(filter(None, [reasons, consequence]))


def _describe_shift(result: Sameness) -> str:
    if not _has_factor(result):
        return (
            "Euclidean distances within each set are the same, but cosines are not. Subtract the shift before you mix "
            "new vectors with old ones."
        )
    return (
        "Euclidean distances within each set are the same up to the factor, but cosines are not. Subtract the shift "
        "and divide by the factor before you mix new vectors with old ones."
    )


def _describe_constant(result: Sameness) -> str:
    old, new = _short_names(result)
    constant, other = (old, new) if result.decided_by == "old_constant" else (new, old)
    return f"All compared rows of {constant} are equal; those of {other} are not. A search in {constant} finds nothing."


def _describe_dimensions(result: Sameness) -> str:
    old, new = _short_names(result)
    return f"{old} has {result.d_old:,} dimensions and {new} has {result.d_new:,}."


def _describe_pairs(result: Sameness) -> str:
    if not result.fits:
        return ""
    kept, tolerance = result.fits[0], result.details.get("tolerance", result.settings.tolerance)
    words = []
    if result.answer == "same":
        agree = "All" if not result.n_changed else f"{result.compared - result.n_changed:,} of"
        words.append(
            f"{agree} {result.compared:,} matched vectors agree: the median change "
            f"{'' if result.decided_by == 'same' else 'apart from a factor and a shift '}is {_format_residual(result)} "
            f"of the spread, and the tolerance is {tolerance:.2g}."
        )
    elif result.decided_by == "directions":
        low, high = (format_number(result.details[f"length_ratio_{share}"]) for share in (1, 99))
        assert result.cosines is not None
        words.append(
            f"99% of the matched vectors have a cosine of at least {result.cosines[0]:.4f}. Each vector has its own "
            f"factor: 98% of the factors are between {low} and {high}, as after normalization."
        )
    elif result.answer in ("rescaled", "shifted"):
        words.append(
            f"With {_describe_transformation(result)}, the median prediction error on held-out vectors is "
            f"{_format_residual(result)} of the spread."
        )
    elif result.answer == "rotated":
        size = f"{_format_factor(result)} times as large" if _has_factor(result) else "the same"
        words.append(
            f"Distances between rows are {size} as before, but each vector has turned by {result.angle:.0f}° on "
            "average."
        )
    elif result.answer == "different" and kept.kept >= 0.5:
        words.append(
            f"{result.n_changed:,} of {result.compared:,} matched vectors moved by more than the tolerance "
            f"({_format_tolerance(tolerance)}); the others did not."
        )
    elif result.answer == "different":
        best = max(result.fits[1:], key=lambda fit: fit.kept, default=kept)
        fitted = (
            f"Even after {_TRANSFORMATIONS[best.relation]}, only {best.kept:.0%} agree."
            if best.kept > kept.kept + 0.005
            else "No factor, shift or rotation maps one set to the other."
        )
        words.append(
            f"{kept.kept:.0%} of {result.compared:,} matched vectors agree within the tolerance "
            f"({_format_tolerance(tolerance)}). {fitted}"
        )
    if result.answer != "same" and result.neighbors is not None:
        words.append(f"On average, {10 * result.neighbors:.1f} of the 10 nearest neighbors of a row agree.")
    return " ".join(words)


def _format_tolerance(tolerance: float) -> str:
    return f"{100 * tolerance:.2g}% of the median distance from the center"


def _format_residual(result: Sameness) -> str:
    residual = result.residual or 0.0
    return format_number(residual, "power") if residual > 1e-6 else "at most 1e−6"


def _describe_transformation(result: Sameness) -> str:
    factor = f"a factor of {_format_factor(result)}" if _has_factor(result) else ""
    if result.answer == "rescaled":
        return factor or "a factor near 1"
    shift = f"a shift of {format_number(result.shift)} times the spread"
    return f"{factor} and {shift}" if factor else shift


def _describe_rows(result: Sameness) -> str:
    return " ".join(filter(None, [_describe_samples(result), _describe_equal_sizes(result)]))


def _describe_equal_sizes(result: Sameness) -> str:
    """Return how to match the rows of two sources of the same length, which may hold the same rows."""
    if result.n_old != result.n_new:
        return ""
    return (
        f"Both sources have {plural(result.n_old, 'row')}, but the rows were not matched. If they are the same rows in "
        'the same order, --pair rows (in Python: pair="rows") compares them row by row.'
    )


def _describe_samples(result: Sameness) -> str:
    if result.auc is None:
        return ""
    below = (
        " An AUC below 0.5 is typical of copies of the same rows on both sides: a held-out row resembles its copy on "
        "the other side."
        if (result.auc_high or 0.0) < 0.5
        else ""
    )
    auc = f"{result.auc:.2f} (95% interval {result.auc_low:.2f} to {result.auc_high:.2f})"
    rate = f"{result.error_rate or 0:.0%}"
    if result.answer == "same":
        return (
            f"A classifier cannot tell held-out old rows from new ones: its AUC is {auc}, and 0.5 is chance. The tests "
            f"of the means and second moments find no difference either. With this many rows, they would have "
            f"detected an AUC of {CLEAR_AUC:g}; they can miss smaller differences.{below}"
        )
    if result.answer == "undecided":
        return (
            "The tests find no difference, but they could miss a changed model. The AUC of a classifier is "
            f"{auc}.{below}"
        )
    decisive = next((test for test in result.tests if test.name == result.decided_by), None)
    reason = "" if decisive is None else f"The test of the {decisive.title} decided (p = {decisive.p_value:.2g}). "
    kind = ""
    if result.answer in ("rescaled", "shifted"):
        kind = f"With {_describe_transformation(result)}, no difference remains. "
    return (
        f"{reason}{kind}A classifier tells held-out old rows from new ones with an AUC of {auc}.{below} All tests "
        f"together raise a false alarm in at most {rate} of cases."
    )


def _describe_sketches(result: Sameness) -> str:
    if not result.tests:
        return ""
    parts = ", ".join(
        f"{test.title} {format_number(test.value)} (limit {format_number(test.limit)})" for test in result.tests
    )
    return f"Computed from the two sketches: {parts}."


def _describe_within(result: Sameness) -> str:
    if result.answer == "same":
        return "The two parts of the rows that are farthest apart look like topics of one model, not like two models."
    if result.answer != "mixed":
        return ""
    if result.decided_by == "covariances":
        return "These rows vary along different directions from the rest; topics of one model do not."
    return "These rows are separated from the rest by a gap that topics of one model do not have."


def _short_names(result: Sameness) -> tuple[str, str]:
    """Return the names of both sources; without their folders, unless the file names are equal."""
    old, new = (name.rsplit("/", 1)[-1] or name for name in (result.old, result.new))
    return (old, new) if old != new else (result.old, result.new)
