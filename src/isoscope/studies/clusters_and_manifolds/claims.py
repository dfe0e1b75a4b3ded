"""Verdicts on the claims of the paper "Clusters and manifolds", based on the measured layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Any

from isoscope.studies.aggregation import group_by
from isoscope.studies.clusters_and_manifolds.measure import LayerResults, mean_lid_by_rows
from isoscope.studies.formatting import format_number, format_range
from isoscope.studies.study import Case, Value
from isoscope.studies.verdicts import BELOW_ZERO, Evidence, count_cases, judge_claims, share_of

if TYPE_CHECKING:
    from isoscope.studies.study import Bounds, Published, Verdict

HIGH_SIMILARITY, NEAR_ZERO, SMALL_LID_SHARE = 0.2, 0.1, 1 / 50
"""Thresholds for a high similarity, a similarity near zero, and a small LID (as a share of the width)."""
MAJORITY_SHARE = 0.5
"""The smallest share of the variance that three principal components must explain to count as a Swiss roll. Also the
smallest share of S_inter that subtracting a single mean must remove to count as an offset."""
MIN_AGREEING_SHARE = 0.9
"""The share of the cases that must agree for the verdict "yes"; it is below 1 because a model has many layers."""
MIN_EXPLAINED_SHARE = 0.1
"""The smallest share of the variance that a token's position, frequency or kind must explain to support a claim."""

_LID = "LID, cosine"
_STATIC = ("GloVe", "GloVe-2M", "GNEWS")
_NO_LAYER = "no layer was measured"
_NO_DECODER = "no decoder was run"


def make_verdicts(published: Published, results: LayerResults) -> tuple[list[Verdict], list[Verdict]]:
    """Return the verdict on each claim of the paper, and on each of our observations."""
    high, near_zero = (HIGH_SIMILARITY, math.inf), (-NEAR_ZERO, NEAR_ZERO)
    most, explained = (MAJORITY_SHARE, math.inf), (MIN_EXPLAINED_SHARE, math.inf)
    decoders = LayerResults([each for each in results.layers if each["kind"] == "decoder"], [])
    clustered = LayerResults([each for each in results.layers if each["clusters"] > 1], [])

    def layers(
        what: str,
        value_of: str | Callable[[dict[str, Any]], float],
        claimed: Bounds,
        *,
        published: str = "stated",
        of: LayerResults = results,
        untested: str = _NO_LAYER,
    ) -> Callable[[], Evidence]:
        getter = (lambda each: float(each[value_of])) if isinstance(value_of, str) else value_of
        return lambda: _layer_evidence(published, of, getter, claimed, what, untested)

    evidence = {
        "inter-high": layers(f"layer: S_inter must be above {HIGH_SIMILARITY}", "inter, raw", high),
        "intra-high": layers(f"layer: S_intra must be above {HIGH_SIMILARITY}", "intra, raw", high),
        "clusters": layers(
            "layer: it must have at least two clusters, with a silhouette of at least 0.1",
            "clusters",
            (1.5, math.inf),
        ),
        "inter-centered": layers(
            f"layer: S_inter inside its clusters must be within {NEAR_ZERO} of zero",
            "inter, clusters",
            near_zero,
        ),
        "intra-centered": layers(
            f"layer: S_intra inside its clusters must be within {NEAR_ZERO} of zero",
            "intra, clusters",
            near_zero,
            published="–",
        ),
        "clusters-mislead": layers(
            "layer with clusters: |S_inter| must be lower with the clusters' means removed than with a single mean "
            "removed",
            lambda each: abs(each["inter, centered"]) - abs(each["inter, one mean"]),
            BELOW_ZERO,
            of=clustered,
            untested="no layer has clusters" if results.layers else _NO_LAYER,
        ),
        "offset": layers(
            f"layer: subtracting a single mean must remove more than {MAJORITY_SHARE:.0%} of |S_inter|",
            lambda each: 1 - abs(each["inter, one mean"]) / abs(each["inter, raw"]) if each["inter, raw"] else math.nan,
            most,
            published="–",
        ),
        "swiss-roll": layers(
            "decoder layer: the first three principal components must explain more than "
            f"{MAJORITY_SHARE:.0%} of the variance",
            lambda each: sum(each["explained"]),
            most,
            published="shown in a figure for GPT and GPT2",
            of=decoders,
            untested=_NO_DECODER,
        ),
        "place": layers(
            f"decoder layer: a token's position in the window must explain more than {MIN_EXPLAINED_SHARE:.0%} of the "
            "variance along the first three principal components. GPT and GPT2 add a learned vector for each position "
            "to the input; models with rotary position embeddings do not",
            "along, place",
            explained,
            published="–",
            of=decoders,
            untested=_NO_DECODER,
        ),
        "frequency-and-kind": layers(
            "layer: frequency and the kind of token must each explain more than "
            f"{MIN_EXPLAINED_SHARE:.0%} of the variance along the first three principal components",
            lambda each: min(each["along, frequency"], each["along, kind"]),
            explained,
            published="shown in figures for BERT, GPT and GPT2",
        ),
        "lid-small": lambda: _small_lid_evidence(published, results),
        "lid-below-static": lambda: _below_static_evidence(published, results),
    }
    return judge_claims(published.claims, evidence), judge_claims(published.observations, evidence)


def _layer_evidence(
    published: str,
    results: LayerResults,
    value_of: Callable[[dict[str, Any]], float],
    claimed: Bounds,
    what: str,
    untested: str,
) -> Evidence:
    """Return evidence with one case for each layer of each model and corpus, averaged over its seeds."""
    if not results.layers:
        return Evidence(published, untested=untested, most=MIN_AGREEING_SHARE)
    cases = []
    for key, own in group_by(results.layers, lambda each: (each["model"], each["corpus"], each["layer"])).items():
        value = Value.of(value_of(each) for each in own)
        if math.isfinite(value.mean):
            cases.append(Case.of("{}, {}, layer {}".format(*key), value, claimed))
    values = [each.estimate for each in cases]
    low, high = (format_number(each, 2) for each in (min(values), max(values)))
    ours = f"{share_of(cases, 'layers')}; {format_number(fmean(values), 2)} on average ({low} to {high})"
    why = (
        f'There is one case for each {what}. For the verdict "yes", at least {MIN_AGREEING_SHARE:.0%} of the layers '
        "must agree."
    )
    by_model = group_by(cases, lambda case: case.words.partition(",")[0])
    against = [model for model, own in by_model.items() if 2 * count_cases(own)[0] < len(own)]
    if against and len(against) < len(by_model):
        why += f" Most layers of {', '.join(against)} do not agree with the claim."
    return Evidence(published, cases, why, ours, untested, MIN_AGREEING_SHARE)


def _small_lid_evidence(published: Published, results: LayerResults) -> Evidence:
    shares = [
        _published_value(published, row, _LID) / _published_value(published, row, "width")
        for row in published.rows("lid")
        if row not in _STATIC
    ]
    theirs = f"{format_range(shares, 3)} of the width"
    cases = [
        Case.exact(
            f"{model}, {corpus}", fmean(each["lid, cosine"] / each["width"] for each in layers), (0.0, SMALL_LID_SHARE)
        )
        for (corpus, model), layers in results.by_corpus_and_model().items()
    ]
    if not cases:
        return Evidence(theirs, untested=_NO_LAYER, most=MIN_AGREEING_SHARE)
    low, high = (format_number(end(each.estimate for each in cases), 3) for end in (min, max))
    why = (
        "There is one case for each model and corpus: the mean LID over layers, on the authors' scale, must be "
        f"below {SMALL_LID_SHARE:g} of the width."
    )
    return Evidence(theirs, cases, why, f"{low} to {high} of the width", most=MIN_AGREEING_SHARE)


def _published_value(published: Published, row: str, column: str) -> float:
    return published.tables["lid"][row, column].value


def _below_static_evidence(published: Published, results: LayerResults) -> Evidence:
    """Return evidence that compares each model and corpus with word vectors, at the largest common number of rows."""
    values = {row: _published_value(published, row, _LID) for row in published.rows("lid")}
    static, others = ([value for row, value in values.items() if (row in _STATIC) is so] for so in (True, False))
    theirs = f"{min(others):g} to {max(others):g}, compared with {min(static):g} to {max(static):g}"
    if not results.layers or not results.words:
        why, untested = "Also pass word vectors as a model (a folder or a file).", "needs a model and word vectors"
        return Evidence(theirs, why=why, untested=untested, most=MIN_AGREEING_SHARE)
    cases, comparisons = [], []
    for (corpus, model), layers in results.by_corpus_and_model().items():
        own = mean_lid_by_rows(layers)
        for name, seeds in results.by_word_vectors().items():
            other = mean_lid_by_rows(seeds)
            n = max(set(own) & set(other), default=0)
            if n:
                cases.append(Case.exact(f"{model}, {corpus}, {name}", own[n] - other[n], BELOW_ZERO))
                comparisons.append(f"{own[n]:.1f} for {model} on {corpus} and {other[n]:.1f} for {name} at {n:,} rows")
    if not cases:
        return Evidence(theirs, untested="not measured at the same number of rows", most=MIN_AGREEING_SHARE)
    ours = f"lower in {share_of(cases, 'comparisons')} at equal numbers of rows, for example, {comparisons[0]}"
    why = (
        "There is one case for each model, corpus and set of word vectors: at an equal number of rows, the model's "
        "mean LID over layers must be lower than the LID of the word vectors."
    )
    return Evidence(theirs, cases, why, ours, most=MIN_AGREEING_SHARE)
