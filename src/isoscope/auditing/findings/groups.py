"""Findings on groups of rows: clusters, labels and token types."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import encode_labels
from isoscope._core.errors import InputError, TooFewRowsError
from isoscope.auditing import nulls
from isoscope.auditing.finding import Range, format_number
from isoscope.auditing.findings.evidence import ABOUT_SHAPE, FOLDS, IF_CONFIRMED, SHARE_BAD, SHARE_LOOK, SHARE_SOURCE
from isoscope.auditing.structure import CLUSTER_NULLS, MIN_SILHOUETTE
from isoscope.metrics.cosine import inter_similarity, intra_similarity, mean_cosine
from isoscope.sketching.sketch import Sketch

if TYPE_CHECKING:
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.findings.evidence import Evidence


def clusters(e: Evidence) -> Iterator[Finding]:
    """Judge whether the rows form clusters, and whether the clusters cause the anisotropy."""
    choice = e.m.clusters
    if choice is None:
        return
    best = max(choice.silhouettes, key=lambda k: choice.silhouettes[k])
    value = choice.silhouettes[best]
    rows = e.m.sample.vectors[e.m.cluster_positions].astype(np.float64)
    within = rows.copy()
    for code in range(choice.n_clusters):
        members = choice.labels == code
        within[members] -= rows[members].mean(axis=0)
    global_score, inner_score = (Sketch.of(X).isoscore(unbiased=True) for X in (rows, within))
    cosines = [
        float(mean_cosine(within[choice.labels == code]))
        for code in range(choice.n_clusters)
        if (choice.labels == code).sum() > 1
    ]
    adjusted = float(np.mean(cosines))
    inside, outside = (1 + score * (e.d - 1) for score in (inner_score, global_score))  # dimensions in use
    mixed = e.m.mixed is not None and e.m.mixed.is_mixed
    apart = not mixed and choice.n_clusters > 1 and inside > outside * (1 + SHARE_LOOK)
    judged = Range(
        (-math.inf, math.inf if not apart else math.nextafter(MIN_SILHOUETTE, 0)),
        (-math.inf, math.inf),
        f"published: a value below {MIN_SILHOUETTE} means one cluster (Cai et al. 2021); null: the rows also count as "
        f"one cluster if any of {CLUSTER_NULLS} random samples with the same spectrum and no clusters scores as high"
        + ('; the verdict is "look" because the space is more isotropic inside the clusters' if apart else ""),
    )
    in_labels = _explained_label_entropy(e) if choice.n_clusters > 1 else None
    if mixed:
        meaning = "Not interpreted: the rows come from two spaces, and the groups found here separate these spaces."
        advice = "Remove the rows of the other space first; see the finding on rows of another space."
    elif choice.n_clusters == 1:
        chance = "2 to 15 clusters fit them no better than random data of the same shape"
        limit = f"the silhouette is below {MIN_SILHOUETTE}"
        meaning = f"The rows form one cluster: {chance if value >= MIN_SILHOUETTE else limit}."
        advice = "Leave it."
    else:
        meaning = (
            f"The rows form {choice.n_clusters} clusters. Inside them, IsoScore is {inner_score:.2f} (all rows: "
            f"{global_score:.2f}) and the mean cosine is {format_number(adjusted)}."
            + (f" {ABOUT_SHAPE}" if apart else "")
        )
        advice = _cluster_advice(apart, in_labels)
    details: dict[str, Any] = {
        "n_clusters": choice.n_clusters,
        "best": best,
        "silhouettes": choice.silhouettes,
        "standard_error": choice.errors[best],
        "isoscore": global_score,
        "isoscore_within": inner_score,
        "mean_cosine_within": adjusted,
        **({} if in_labels is None else {"labels_in_clusters": in_labels}),
    }
    if value >= MIN_SILHOUETTE:  # the silhouette alone does not determine the verdict
        details["range"] = _describe_cluster_verdict(choice.n_clusters, mixed=mixed, apart=apart)
    yield e.finding(
        "clusters",
        "Cluster structure (silhouette)",
        value,
        None,
        judged,
        meaning,
        advice,
        rows=len(rows),
        details=details,
    )


def _describe_cluster_verdict(n_clusters: int, *, mixed: bool, apart: bool) -> str:
    """Return the range of a silhouette that is high enough for clusters, and the reason for its verdict."""
    if mixed:
        return "not judged: the clusters separate two spaces"
    if n_clusters == 1:
        return "ok: random data without clusters has as high a silhouette"
    if not apart:
        return "ok: the space inside the clusters is no more isotropic"
    return f"ok below {format_number(MIN_SILHOUETTE)}, or if random data without clusters has as high a silhouette"


def _cluster_advice(apart: bool, in_labels: float | None) -> str:
    """Return the advice for clusters; it suggests no repair that would remove the labels."""
    if in_labels is not None and in_labels >= SHARE_LOOK:
        return (
            f"Leave the clusters as they are: they carry {100 * in_labels:.0f}% of the information in the labels, and "
            "a repair that centers each cluster would remove it."
        )
    if not apart:
        return "Leave it: the space inside the clusters is no more isotropic than the whole space."
    return f"The clusters cause the anisotropy: center each of them (`isoscope fix cluster-center`) {IF_CONFIRMED}."


def _explained_label_entropy(e: Evidence) -> float | None:
    """Return the share of label entropy that clusters explain, corrected for chance; None if there are no labels."""
    choice, labels = e.m.clusters, e.m.sample.columns.get("labels")
    if choice is None or labels is None:
        return None
    found = encode_labels(labels[e.m.cluster_positions], len(e.m.cluster_positions))
    if len(found.names) < 2:
        return None
    counts = np.zeros((choice.n_clusters, len(found.names)))
    np.add.at(counts, (choice.labels, found.codes), 1)
    joint = counts / counts.sum()
    of_labels, of_clusters = joint.sum(axis=0), joint.sum(axis=1)
    some = joint > 0
    information = float(np.sum(joint[some] * np.log((joint / np.outer(of_clusters, of_labels))[some])))
    chance = (counts.shape[0] - 1) * (counts.shape[1] - 1) / (2 * counts.sum())  # the bias of the plug-in estimate
    entropy = -float(np.sum(of_labels * np.log(of_labels)))
    return float(max(information - chance, 0.0) / entropy)


def labels(e: Evidence) -> Iterator[Finding]:
    """Judge how well the labels separate the rows."""
    scores, shuffled = e.m.label_scores, e.m.shuffled_scores
    if scores is None or shuffled is None:
        return
    if _are_labels_of_texts(e.m.sample.columns):
        raise InputError("the labels describe texts but the rows are tokens: audit one vector per text instead")
    value, null = float(scores.mean()), float(shuffled.mean())
    low, high = e.around(value, nulls.mean_error(scores), len(scores))
    chance = null + 4 * nulls.mean_error(shuffled)
    source = (
        '"look" below 0, where rows are nearer to another label than to their own; "bad" below the silhouette of '
        "shuffled labels (mean + 4 standard errors)"
    )
    judged = Range.higher_is_better(max(0.0, chance), chance, source, null)
    wrong = float((scores < 0).mean())
    meaning = (
        f"{100 * wrong:.0f}% of the rows are nearer to another label than to their own (by {e.m.settings.metric})."
    )
    advice = {
        "ok": "The labels form separate groups. Use a repair only if `isoscope advise --labels` confirms it.",
        "look": "The labels overlap. Run `isoscope advise --labels` to check whether a linear probe separates them.",
        "bad": "The labels fit no better than shuffled labels: check that they belong to these rows, in this order.",
    }[judged.verdict(value)]
    yield e.finding(
        "labels",
        "Silhouette of the labels",
        value,
        (low, high),
        judged,
        meaning,
        advice,
        rows=len(scores),
        sampled=not e.m.complete,
        details={"shuffled": null, "nearer_to_another": wrong},
    )


def _are_labels_of_texts(columns: dict[str, np.ndarray]) -> bool:
    """Return whether the rows are tokens whose labels are those of their texts."""
    if "types" not in columns or "groups" not in columns:
        return False
    texts, codes = np.unique(columns["groups"].astype(str), return_inverse=True)
    pairs = {*zip(codes.tolist(), columns["labels"].tolist(), strict=True)}
    return len(texts) < len(codes) and len(pairs) == len(texts)


def label_conflict(e: Evidence) -> Iterator[Finding]:
    """Judge how much of the variance that repairs remove, along the leading components, separates the labels."""
    if e.m.label_scores is None:
        return
    e.check_variance()
    sample = e.m.sample
    found = encode_labels(sample.columns["labels"], len(sample))
    rows = sample.vectors.astype(np.float64)
    rows -= rows.mean(axis=0)
    k = min(3, e.d)
    top = rows @ e.m.centered.vectors[:, :k]
    between = _between_group_share(top, found.codes, found.counts)
    overall = float(_between_group_share(rows, found.codes, found.counts))
    member = np.zeros((len(found.counts), len(rows)))
    member[found.codes, np.arange(len(rows))] = 1 / found.counts[found.codes]
    inner = Sketch.of(rows - (member @ rows)[found.codes]).isoscore(unbiased=True)
    whole = Sketch.of(rows).isoscore(unbiased=True)
    value = float(between)
    folds = np.array_split(np.random.default_rng(e.m.settings.seed).permutation(len(rows)), FOLDS)
    left = [
        _between_group_share(np.delete(top, fold, axis=0), *_compact_codes(np.delete(found.codes, fold)))
        for fold in folds
    ]
    low, high = e.around(value, nulls.jackknife_error(np.asarray(left)), FOLDS)
    expected = (len(found.counts) - 1) / max(len(rows) - 1, 1)
    judged = Range.lower_is_better(
        max(SHARE_BAD, 2 * expected),
        math.inf,
        f"shuffled labels explain {expected:.2g}; at one half or more, the components mainly separate the labels",
        expected,
    )
    if judged.verdict(value) == "ok":
        meaning = (
            f"The labels explain {100 * value:.0f}% of the variance along the first {k} principal components, and "
            f"{100 * overall:.0f}% of the total variance."
        )
        advice = (
            "The leading principal components hardly separate the labels. Even so, remove them only if `isoscope "
            "advise` confirms it."
        )
    else:
        meaning = (
            f"Removing the first {k} principal components would also remove your labels: the labels explain "
            f"{100 * value:.0f}% of the variance along these components. IsoScore is {whole:.2f}; after centering the "
            f"rows of each label, it is {inner:.2f}."
        )
        advice = (
            "Do not remove the leading principal components, and do not whiten, unless `isoscope advise --labels` "
            "confirms it on your task."
        )
    yield e.finding(
        "label_conflict",
        "Labels in the leading principal components",
        value,
        (max(low, 0.0), min(high, 1.0)),
        judged,
        meaning,
        advice,
        rows=len(rows),
        form="share",
        sampled=not e.m.complete,
        details={"of_all_variance": overall, "isoscore": whole, "isoscore_within_labels": inner},
    )


def _between_group_share(rows: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the between-group share of the variance."""
    sums = np.zeros((len(counts), rows.shape[1]))
    np.add.at(sums, codes, rows)
    return np.asarray((sums**2 / counts[:, None]).sum() / (rows**2).sum())


def _compact_codes(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return consecutive codes, and the number of rows with each code."""
    _, codes, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return codes, counts


def types(e: Evidence) -> Iterator[Finding]:
    """Judge the mean cosines across and within token types (S_inter, S_intra)."""
    found = e.m.types
    if found is None:
        return
    number, rows, inter, intra = len(found.names), found.rows, found.inter, found.intra
    if number < 2 or not len(found.each):
        raise TooFewRowsError(
            f"{rows:,} rows have {number:,} types: need at least two types, one of them with at least two rows"
        )
    within = _within_cluster_similarity(e)
    low, high = e.around(inter, nulls.mean_cosine_error(e.sketch, e.seen) * math.sqrt(e.n / rows), len(e.seen))
    judged = Range.lower_is_better(SHARE_LOOK, SHARE_BAD, f"the value for isotropic data is 0; {SHARE_SOURCE}", 0.0)
    yield e.finding(
        "inter_type",
        "Mean cosine across token types (S_inter)",
        inter,
        (low, high),
        judged,
        f"Different words look unrelated: across {number:,} types, their tokens have a mean cosine of {inter:.2f}."
        if judged.verdict(inter) == "ok"
        else f"Different words look similar: across {number:,} types, their tokens have a mean cosine of {inter:.2f}. "
        f"{ABOUT_SHAPE}",
        "Leave it." if judged.verdict(inter) == "ok" else f"Subtract the mean (`isoscope fix center`) {IF_CONFIRMED}.",
        rows=rows,
        details={"types": number, **({} if within is None else {"within_clusters": within[0]})},
    )
    low, high = e.around(intra, nulls.mean_error(found.each), max(len(found.each), 2))
    judged = Range.higher_is_better(
        inter, inter, "tokens of the same type should be more similar than tokens of different types", inter
    )
    yield e.finding(
        "intra_type",
        "Mean cosine within a token type (S_intra)",
        intra,
        (low, high),
        judged,
        f"Tokens of the same word have a mean cosine of {intra:.2f}. This is {max(intra - inter, 0):.2f} higher than "
        "for tokens of different words.",
        "Judge by the difference, not by the value: it shows how similar the tokens of a word stay across contexts.",
        rows=rows,
        details={} if within is None else {"within_clusters": within[1]},
    )


def _within_cluster_similarity(e: Evidence) -> tuple[float, float] | None:
    """Return S_inter and S_intra, averaged over centered clusters (Cai et al.); None if there is only one cluster."""
    choice = e.m.clusters
    if choice is None or choice.n_clusters == 1:
        return None
    rows, kinds = e.m.sample.vectors[e.m.cluster_positions], e.m.sample.columns["types"][e.m.cluster_positions]
    try:
        inter, intra = (
            float(measure(rows, kinds, clustered=choice.labels)) for measure in (inter_similarity, intra_similarity)
        )
    except InputError:  # no cluster has two rows of a type, or two types
        return None
    return inter, intra
