"""Whether the claims of Cai et al. hold in the layers that were measured, each by a rule that is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from isoscope.studies.clusters_and_manifolds.found import Found, at_sizes
from isoscope.studies.outcome import Holds, Verdict
from isoscope.studies.published import Published
from isoscope.studies.words import number

HIGH, NEAR_ZERO, FEW = 0.2, 0.1, 1 / 50
"""A similarity that is called high, one that is called near zero, and a local dimension of few, of the width."""
MOST = 0.5
"""Of the variance, what three directions hold if the cloud is a sheet in them; of S_inter, what one mean takes out if
it is an offset."""
FOLLOWS = 0.1
"""Of the variance along them: what a token's place, frequency or kind explains if they follow it."""

_LID = "LID, cosine"
_STATIC = ("GloVe", "GloVe-2M", "GNEWS")


def verdicts(published: Published, found: Found) -> list[Verdict]:
    """A verdict on each claim."""
    told: dict[str, tuple[str, str, Holds, str]] = {
        "inter-high": _in_layers(
            found, lambda each: each["inter, raw"] > HIGH, ("inter, raw",), f"S_inter above {HIGH}"
        ),
        "intra-high": _in_layers(
            found, lambda each: each["intra, raw"] > HIGH, ("intra, raw",), f"S_intra above {HIGH}"
        ),
        "clusters": _in_layers(
            found, lambda each: each["clusters"] > 1, ("silhouette",), "two clusters or more, a silhouette of 0.1"
        ),
        "inter-centred": _in_layers(
            found,
            lambda each: abs(each["inter, clusters"]) < NEAR_ZERO,
            ("inter, clusters",),
            f"S_inter within {NEAR_ZERO} of zero",
        ),
        "intra-centred": _in_layers(
            found,
            lambda each: abs(each["intra, clusters"]) < NEAR_ZERO,
            ("intra, clusters",),
            f"S_intra within {NEAR_ZERO} of zero",
        ),
        "clusters-mislead": _misled(found),
        "swiss-roll": _rolled(found),
        "frequency-and-kind": _in_layers(
            found,
            lambda each: min(each[at] for at in _FREQUENCY_AND_KIND) > FOLLOWS,
            _FREQUENCY_AND_KIND,
            f"frequency and kind each explain {FOLLOWS:.0%} of what lies along three directions",
            "drawn, BERT, GPT and GPT2",
        ),
        "lid-small": _small(published, found),
        "lid-below-static": _below_static(published, found),
    }
    return [Verdict(claim, *told[claim.key]) for claim in published.claims]


_FREQUENCY_AND_KIND = ("along, frequency", "along, kind")
_CALLED = {
    "inter, raw": "S_inter",
    "intra, raw": "S_intra",
    "silhouette": "the silhouette",
    "inter, clusters": "S_inter in clusters",
    "intra, clusters": "S_intra in clusters",
    "along, frequency": "what frequency explains",
    "along, kind": "what the kind of token explains",
}
"""What is measured of a layer, in words."""
_UNTESTED = ("", "no layer was measured", Holds.untested, "")


def _by_share(share: float) -> Holds:
    """Of the cases: nearly all, most, or fewer."""
    return Holds.yes if share >= 0.9 else Holds.partly if share >= 0.5 else Holds.no


def _in_layers(
    found: Found,
    good: Callable[[dict[str, Any]], bool],
    shown: Sequence[str],
    rule: str,
    said: str = "so in words, all models",
) -> tuple[str, str, Holds, str]:
    """Whether something is so in the layers; the paper says so in words and shows a figure."""
    if not found.layers:
        return _UNTESTED
    so = [good(each) for each in found.layers]
    ours = "; ".join([f"{sum(so)} of {len(so)} layers", *(_averaged(found.layers, at) for at in shown)])
    by_model = {model: fmean(good(each) for each in layers) for model, layers in found.models().items()}
    against = [model for model, share in by_model.items() if share < 0.5]
    why = f"Counted as so: {rule}; it holds if so in 90% of the layers, in part if in half of them."
    if against and len(against) < len(by_model):
        why += f" Not so in most layers of {', '.join(against)}."
    return said, ours, _by_share(fmean(so)), why


def _averaged(layers: Sequence[dict[str, Any]], at: str) -> str:
    values = [float(each[at]) for each in layers]
    return (
        f"{_CALLED[at]} is {number(fmean(values), 2)} on average, {number(min(values), 2)} to {number(max(values), 2)}"
    )


def _misled(found: Found) -> tuple[str, str, Holds, str]:
    parted = [each for each in found.layers if each["clusters"] > 1]
    if not parted:
        return ("so in words", "no layer has clusters", Holds.untested, "") if found.layers else _UNTESTED
    nearer = [abs(each["inter, centred"]) < abs(each["inter, one mean"]) for each in parted]
    one, many = (fmean(abs(each[at]) for each in parted) for at in ("inter, one mean", "inter, centred"))
    raw = fmean(abs(each["inter, raw"]) for each in parted)
    ours = (
        f"nearer to zero in {sum(nearer)} of {len(nearer)} layers that have clusters; S_inter is {number(raw, 2)} as "
        f"it is, {number(one, 3)} without the mean, {number(many, 3)} without the clusters' (sizes, on average)"
    )
    removed = (raw - one) / raw if raw else 0.0
    holds = _by_share(fmean(nearer))
    why = (
        "It holds if nearer in 90% of these layers, in part if in half of them, and in part at most where a single "
        "mean takes out more than half of it."
    )
    if removed > MOST:
        holds = Holds.partly if holds is Holds.yes else holds
        why += f" A single mean already takes out {removed:.0%}: most is an offset, which needs no clusters."
    return "so in words", ours, holds, why


def _rolled(found: Found) -> tuple[str, str, Holds, str]:
    decoders = [each for each in found.layers if each["kind"] == "decoder"]
    if not decoders:
        return "drawn, GPT and GPT2", "no decoder was run", Holds.untested, ""
    so = [sum(each["explained"]) > MOST and each["along, place"] > FOLLOWS for each in decoders]
    hold = fmean(sum(each["explained"]) for each in decoders)
    place = fmean(each["along, place"] for each in decoders)
    ours = (
        f"{sum(so)} of {len(so)} layers of decoders; three directions hold {hold:.0%} of the variance, of which place "
        f"in the window explains {place:.0%}"
    )
    why = (
        f"Counted as so: {MOST:.0%} and {FOLLOWS:.0%} at least; it holds if so in 90% of the layers, in part if in "
        "half of them. GPT and GPT2 add a learnt vector for each place to the input; models with rotary places do not."
    )
    return "drawn, GPT and GPT2", ours, _by_share(fmean(so)), why


def _small(published: Published, found: Found) -> tuple[str, str, Holds, str]:
    contextual = [row for row in published.rows("lid") if row not in _STATIC]
    shares = {row: _published(published, row, _LID) / _published(published, row, "width") for row in contextual}
    theirs = f"{number(min(shares.values()), 3)} to {number(max(shares.values()), 3)} of the width"
    if not found.layers:
        return theirs, _UNTESTED[1], Holds.untested, ""
    ours = {
        f"{model}, {corpus}": fmean(each["lid, cosine"] / each["width"] for each in layers)
        for (corpus, model), layers in found.clouds().items()
    }
    words = f"{number(min(ours.values()), 3)} to {number(max(ours.values()), 3)} of the width"
    why = "On the authors' scale, means over layers; it holds if so for 90% of the models and corpora."
    return theirs, words, _by_share(fmean(share < FEW for share in ours.values())), why


def _published(published: Published, row: str, column: str) -> float:
    found = published.number("lid", row, column)
    assert found is not None
    return found.value


def _below_static(published: Published, found: Found) -> tuple[str, str, Holds, str]:
    """Each cloud against each set of word vectors, at the largest number of rows that both were measured with."""
    theirs = {row: _published(published, row, _LID) for row in published.rows("lid")}
    static_theirs = [theirs[row] for row in _STATIC]
    others = [value for row, value in theirs.items() if row not in _STATIC]
    words = f"{min(others):g} to {max(others):g} against {min(static_theirs):g} to {max(static_theirs):g}"
    if not found.layers or not found.words:
        return words, "needs a model and word vectors", Holds.untested, "Name a folder or file of word vectors too."
    below, shown = [], []
    for (corpus, model), layers in found.clouds().items():
        own = at_sizes(layers)
        for name, seeds in found.static().items():
            static = at_sizes(seeds)
            n = max(set(own) & set(static), default=0)
            if n:
                below.append(own[n] < static[n])
                shown.append(f"{model}, {corpus} {own[n]:.1f} and {name} {static[n]:.1f} at {n:,} rows")
    if not below:
        return words, "no number of rows is shared", Holds.untested, ""
    ours = f"below in {sum(below)} of {len(below)} comparisons at equal numbers of rows; such as {shown[0]}"
    why = "Mean over layers, cosine, authors' scale, both on as many rows; it holds if so in 90% of the comparisons."
    return words, ours, _by_share(fmean(below)), why
