"""The glossary of a page: the terms that its findings, charts and tables use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isoscope._report.html import render_definition_list, section

if TYPE_CHECKING:
    from collections.abc import Collection

    from isoscope._report.html import Section

_TERMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Cosine",
        "How similar the directions of two vectors are: 1 for the same direction, 0 for unrelated directions, −1 for "
        "opposite ones.",
        ("audit", "threshold", "same"),
    ),
    (
        "Isotropic",
        "Spread equally in all directions. The opposite is anisotropic. Isotropic vectors are not always better for a "
        "task.",
        ("audit", "advice"),
    ),
    (
        "Verdict",
        "“ok”, “worth a look” or “bad”, by thresholds on one number. The findings describe the shape of the vectors, "
        "not how well they solve a task.",
        ("audit",),
    ),
    (
        "Random data",
        "Independent vectors without a preferred direction, with the same number of rows and dimensions as yours. Any "
        "structure in them is due to chance.",
        ("audit",),
    ),
    (
        "Repair",
        "A map that changes all vectors in the same way, such as centering (subtract the mean), standardizing (divide "
        "each coordinate by its standard deviation), whitening (equal variance in all directions) and all-but-the-top "
        "(remove the mean and the leading principal components).",
        ("audit", "advice"),
    ),
    (
        "Mean cosine",
        "The average cosine of two random rows. Near 0, a high cosine means that rows are related.",
        ("mean_cosine",),
    ),
    (
        "Leading axis (anisotropy)",
        "The direction along which the vectors are longest, and its share of all squared lengths.",
        ("anisotropy",),
    ),
    (
        "Principal components",
        "The directions along which the vectors vary most, after the mean is subtracted.",
        ("anisotropy", "label_conflict", "frequency", "advice", "compress"),
    ),
    (
        "IsoScore",
        "How evenly the variance fills the dimensions: 0 if it lies along one direction, 1 if it is equal in all. The "
        "unbiased estimate varies around the true value, so it can exceed 1.",
        ("isoscore", "advice"),
    ),
    ("Effective rank", "The number of dimensions that the variance fills in total.", ("effective_rank",)),
    ("Rogue dimensions", "The few coordinates that dominate most cosines.", ("rogue_dimensions",)),
    (
        "Partition isotropy",
        "The smallest value of the partition function Z(c) = Σ exp(c·x) over directions c, divided by the largest: 1 "
        "if all directions are alike.",
        ("partition_isotropy",),
    ),
    (
        "Near-duplicate",
        "A row that is closer to another row than the density around it explains.",
        ("near_duplicates",),
    ),
    ("Hub, anti-hub", "A row among the nearest neighbors of very many rows, or of none.", ("hubness",)),
    (
        "Local dimension (LID)",
        "The number of directions in which the neighbors of a row spread.",
        ("intrinsic_dimension",),
    ),
    ("TwoNN", "An estimate of the dimension from the two nearest neighbors of each row.", ("two_nn",)),
    (
        "Silhouette",
        "How much nearer rows are to their own group than to the next one, from −1 to 1.",
        ("clusters", "labels"),
    ),
    (
        "S_inter, S_intra",
        "The mean cosine of tokens of different words, and of tokens of the same word.",
        ("inter_type", "intra_type"),
    ),
    (
        "Baseline score",
        "The score of the original vectors, named “as it is”. Every gain is the difference from it.",
        ("advice",),
    ),
    (
        "95% interval",
        "The range of values that the data supports. A gain whose interval contains 0 may be chance.",
        ("advice",),
    ),
    (
        "Linear probe accuracy",
        "The share of held-out rows whose label a linear classifier on the vectors predicts correctly.",
        ("probe",),
    ),
    (
        "Neighbor accuracy",
        "The share of rows whose label is the most common one among their nearest neighbors.",
        ("knn",),
    ),
    (
        "Adjusted V-measure",
        "How well clusters of the vectors agree with the labels: 1 if they are the same groups, 0 for chance.",
        ("v_measure",),
    ),
    (
        "nDCG@10",
        "How many of the 10 first results are relevant and how early they come: 1 for the best possible order.",
        ("ndcg@10",),
    ),
    (
        "Recall@100",
        "The share of the relevant documents that are among the first 100 results.",
        ("recall@100",),
    ),
    (
        "Spearman's correlation",
        "How well the cosines order the pairs as the grades do: 1 for the same order, 0 for an unrelated one.",
        ("spearman",),
    ),
    ("Match", "A pair of rows that belongs together, by your judgments or labels.", ("threshold",)),
    ("Threshold", "A cosine: pairs with at least this cosine count as matches.", ("threshold",)),
    ("Precision", "The share of matches among the pairs above the threshold.", ("precision",)),
    ("Recall", "The share of all matches that are above the threshold.", ("precision",)),
    ("Space", "The vectors of one model. Vectors of two models cannot be compared.", ("mixed_spaces", "same")),
    (
        "Rotation",
        "A change of the coordinates that keeps all distances. A search within one side still finds the same rows, but "
        "rows of the two sides cannot be compared.",
        ("same",),
    ),
    (
        "CKA",
        "How similarly two sets of vectors arrange the same rows: 1 for the same arrangement up to a rotation and a "
        "factor.",
        ("same", "cka"),
    ),
    (
        "Procrustes distance",
        "The share of the second set of vectors that no rotation, shift and scaling of the first one explains: 0 for "
        "the same arrangement.",
        ("procrustes",),
    ),
    (
        "Mutual nearest neighbors (NN)",
        "The share of the nearest neighbors of a row that two sets of vectors have in common.",
        ("mutual_knn",),
    ),
    ("Recall@10", "The share of the 10 exact nearest rows that a search in the codes finds.", ("recall@10",)),
    (
        "float16, int8, int4, 1 bit",
        "The number format of a stored coordinate: 16, 8, 4 or 1 bits instead of 32. Fewer bits need less memory and "
        "keep less detail.",
        ("compress",),
    ),
    (
        "PQ (product quantization)",
        "Each group of coordinates is stored as the number of the most similar entry in a list learned from the data.",
        ("compress",),
    ),
    (
        "Rescoring",
        "Search the small codes first, then reorder the best results by the original vectors, which must stay stored.",
        ("compress",),
    ),
    (
        "Centered, rotated, whitened",
        "What is done to the vectors before they are stored: subtract the mean, mix the coordinates by a random "
        "rotation, or give all directions equal variance.",
        ("compress",),
    ),
    (
        "Barcode",
        "The distances at which the parts of a sample join into one; long bars show separate parts.",
        ("clusters",),
    ),
)
"""Term, explanation, and what uses the term: kinds of pages, findings or measures."""


def render_glossary(subjects: Collection[str]) -> Section:
    """Return the section that explains the terms of a page; the subjects are its kind, findings and measures."""
    rows = [(term, words) for term, words, users in _TERMS if any(user in subjects for user in users)]
    return section("glossary", "Terms on this page", render_definition_list(*rows))
