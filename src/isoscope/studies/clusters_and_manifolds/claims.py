"""Verdicts on the claims of Cai et al., from the layers that were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from isoscope.studies.clusters_and_manifolds.measure import LayerResults, group_by, mean_lid_by_rows
from isoscope.studies.study import Case, Value
from isoscope.studies.verdicts import BELOW_ZERO, count_cases, make_verdict
from isoscope.studies.words import format_number

if TYPE_CHECKING:
    from isoscope.studies.study import Bounds, Published, Verdict

HIGH_SIMILARITY, NEAR_ZERO, SMALL_LID_SHARE = 0.2, 0.1, 1 / 50
"""A similarity that is called high, one that is called near zero, and a local dimension of few, of the width."""
MAJORITY_SHARE = 0.5
"""Of the variance, what three directions hold if the cloud is a sheet in them; of S_inter, what one mean takes out if
it is an offset."""
MIN_AGREEING_SHARE = 0.9
"""The share of the cases that must agree for a plain yes: a model has many layers."""
MIN_EXPLAINED_SHARE = 0.1
"""Of the variance along them: what a token's place, frequency or kind explains if they follow it."""

_LID = "LID, cosine"
_STATIC = ("GloVe", "GloVe-2M", "GNEWS")


def make_verdicts(published: Published, found: LayerResults) -> tuple[list[Verdict], list[Verdict]]:
    """Return a verdict on each claim of the paper, and on each observation of ours."""
    near = (-NEAR_ZERO, NEAR_ZERO)
    decoders = LayerResults([each for each in found.layers if each["kind"] == "decoder"], [])
    clustered = LayerResults([each for each in found.layers if each["clusters"] > 1], [])
    tested: dict[str, Evidence] = {
        "inter-high": _layer_evidence(
            found,
            _value_getter("inter, raw"),
            (HIGH_SIMILARITY, math.inf),
            f"S_inter of a layer, above {HIGH_SIMILARITY}",
        ),
        "intra-high": _layer_evidence(
            found,
            _value_getter("intra, raw"),
            (HIGH_SIMILARITY, math.inf),
            f"S_intra of a layer, above {HIGH_SIMILARITY}",
        ),
        "clusters": _layer_evidence(
            found,
            _value_getter("clusters"),
            (1.5, math.inf),
            "the clusters of a layer, two or more by a silhouette of 0.1",
        ),
        "inter-centred": _layer_evidence(
            found,
            _value_getter("inter, clusters"),
            near,
            f"S_inter inside the clusters of a layer, within {NEAR_ZERO} of zero",
        ),
        "intra-centred": _layer_evidence(
            found,
            _value_getter("intra, clusters"),
            near,
            f"S_intra inside the clusters of a layer, within {NEAR_ZERO} of zero",
        ),
        "clusters-mislead": _layer_evidence(
            clustered,
            lambda each: abs(each["inter, centred"]) - abs(each["inter, one mean"]),
            BELOW_ZERO,
            "a layer that has clusters: |S_inter| without the clusters' means minus that without one mean, below 0",
            untested="no layer has clusters" if found.layers else _NO_LAYER,
        ),
        "offset": _layer_evidence(
            found,
            lambda each: 1 - abs(each["inter, one mean"]) / abs(each["inter, raw"]) if each["inter, raw"] else math.nan,
            (MAJORITY_SHARE, math.inf),
            f"the share of a layer's |S_inter| that one mean takes out, above {MAJORITY_SHARE:.0%}",
        ),
        "swiss-roll": _layer_evidence(
            decoders,
            lambda each: sum(each["explained"]),
            (MAJORITY_SHARE, math.inf),
            f"the share of a decoder layer's variance along three directions, above {MAJORITY_SHARE:.0%}",
            untested="no decoder was run",
        ),
        "place": _layer_evidence(
            decoders,
            _value_getter("along, place"),
            (MIN_EXPLAINED_SHARE, math.inf),
            "what a token's place in the window explains of the variance along three directions, above "
            f"{MIN_EXPLAINED_SHARE:.0%}. "
            "GPT and GPT2 add a learned vector for each place to the input; models with rotary positions do not",
            untested="no decoder was run",
        ),
        "frequency-and-kind": _layer_evidence(
            found,
            lambda each: min(each["along, frequency"], each["along, kind"]),
            (MIN_EXPLAINED_SHARE, math.inf),
            "the smaller of what frequency and kind explain of the variance along three directions of a layer, above "
            f"{MIN_EXPLAINED_SHARE:.0%}",
        ),
        "lid-small": _small_lid_evidence(found),
        "lid-below-static": _below_static_evidence(found),
    }
    said = _published_evidence(published)
    both = []
    for claims in (published.claims, published.observations):
        verdicts = []
        for claim in claims:
            cases, why, ours, untested = tested[claim.key]
            told = said.get(claim.key, "stated" if claim in published.claims else "–")
            verdicts.append(
                make_verdict(claim, told, cases, why, ours=ours, untested=untested, most=MIN_AGREEING_SHARE)
            )
        both.append(verdicts)
    return both[0], both[1]


Evidence = tuple[list[Case], str, str | None, str]
"""The cases of a claim, a reason, our evidence in words, and what to show without a case."""
_NO_LAYER = "no layer was measured"


def _published_evidence(published: Published) -> dict[str, str]:
    """Return the published evidence in words."""
    values = {row: _published_value(published, row, _LID) for row in published.rows("lid")}
    shares = [value / _published_value(published, row, "width") for row, value in values.items() if row not in _STATIC]
    static, others = ([value for row, value in values.items() if (row in _STATIC) is so] for so in (True, False))
    return {
        "swiss-roll": "drawn, GPT and GPT2",
        "frequency-and-kind": "drawn, BERT, GPT and GPT2",
        "lid-small": f"{format_number(min(shares), 3)} to {format_number(max(shares), 3)} of the width",
        "lid-below-static": f"{min(others):g} to {max(others):g} against {min(static):g} to {max(static):g}",
    }


def _value_getter(name: str) -> Callable[[dict[str, Any]], float]:
    return lambda each: float(each[name])


def _layer_evidence(
    found: LayerResults,
    value_of: Callable[[dict[str, Any]], float],
    claimed: Bounds,
    what: str,
    *,
    untested: str = _NO_LAYER,
) -> Evidence:
    """Return a case for each layer of each model and corpus: the mean over its seeds; exact if it has one seed."""
    if not found.layers:
        return [], "", None, untested
    cases = []
    for key, own in group_by(found.layers, lambda each: (each["model"], each["corpus"], each["layer"])).items():
        value = Value.of(value_of(each) for each in own)
        words = "{}, {}, layer {}".format(*key)
        if math.isfinite(value.mean):
            one = Case.exact(words, value.mean, claimed)
            cases.append(Case.over_seeds(words, value, claimed) if len(own) > 1 else one)
    values = [each.estimate for each in cases]
    spread = (
        f"{format_number(fmean(values), 2)} on average, {format_number(min(values), 2)} to "
        f"{format_number(max(values), 2)}"
    )
    ours = f"{count_cases(cases)[0]} of {len(cases)} layers; {spread}"
    why = f"A case is {what}. A plain yes needs {MIN_AGREEING_SHARE:.0%} of the layers."
    against = [model for model, own in _group_by_model(cases).items() if 2 * count_cases(own)[0] < len(own)]
    if against and len(against) < len(_group_by_model(cases)):
        why += f" Most layers of {', '.join(against)} do not agree."
    return cases, why, ours, untested


def _group_by_model(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Return the cases of each model."""
    found: dict[str, list[Case]] = {}
    for each in cases:
        found.setdefault(each.words.partition(",")[0], []).append(each)
    return found


def _small_lid_evidence(found: LayerResults) -> Evidence:
    cases = [
        Case.exact(
            f"{model}, {corpus}", fmean(each["lid, cosine"] / each["width"] for each in layers), (0.0, SMALL_LID_SHARE)
        )
        for (corpus, model), layers in found.clouds().items()
    ]
    if not cases:
        return [], "", None, _NO_LAYER
    values = [each.estimate for each in cases]
    ours = f"{format_number(min(values), 3)} to {format_number(max(values), 3)} of the width"
    why = (
        "A case is a model and a corpus: the mean LID over layers, on the authors' scale, below "
        f"{SMALL_LID_SHARE:g} of the width."
    )
    return cases, why, ours, _NO_LAYER


def _published_value(published: Published, row: str, column: str) -> float:
    found = published.number("lid", row, column)
    assert found is not None
    return found.value


def _below_static_evidence(found: LayerResults) -> Evidence:
    """Return each model and corpus against each set of word vectors, at the largest number of rows that both have."""
    if not found.layers or not found.words:
        return [], "Name a folder or file of word vectors too.", None, "needs a model and word vectors"
    cases, shown = [], []
    for (corpus, model), layers in found.clouds().items():
        own = mean_lid_by_rows(layers)
        for name, seeds in found.seeds_by_word_vectors().items():
            static = mean_lid_by_rows(seeds)
            n = max(set(own) & set(static), default=0)
            if n:
                cases.append(Case.exact(f"{model}, {corpus}, {name}", own[n] - static[n], BELOW_ZERO))
                shown.append(f"{model}, {corpus} {own[n]:.1f} and {name} {static[n]:.1f} at {n:,} rows")
    if not cases:
        return [], "", None, "no number of rows is shared"
    ours = f"below in {count_cases(cases)[0]} of {len(cases)} comparisons at equal numbers of rows; such as {shown[0]}"
    why = "A case is a model, a corpus and a set of word vectors: mean LID over layers at equal numbers of rows."
    return cases, why, ours, ""
