"""The glossary of an audit page: the terms that its findings and charts use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isoscope._report.html import render_definition_list, section

if TYPE_CHECKING:
    from collections.abc import Collection

    from isoscope._report.html import Markup

TITLE = "Terms on this page"

_TERMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Cosine",
        "How similar the directions of two vectors are: 1 for the same direction, 0 for unrelated directions, −1 for "
        "opposite ones.",
        (),
    ),
    (
        "Isotropic",
        "Spread equally in all directions. The opposite is anisotropic. Isotropic vectors are not always better for a "
        "task.",
        (),
    ),
    (
        "Verdict",
        "“ok”, “worth a look” or “bad”, by thresholds on one number. The findings describe the shape of the vectors, "
        "not how well they solve a task.",
        (),
    ),
    (
        "Random data",
        "Independent vectors without a preferred direction, as many and with as many dimensions as yours. What they "
        "show is chance.",
        (),
    ),
    (
        "Repair",
        "A map that changes all vectors in the same way, such as centering (subtract the mean), standardizing (divide "
        "each coordinate by its standard deviation), whitening (equal variance in all directions) and all-but-the-top "
        "(remove the mean and the leading principal components).",
        (),
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
        ("anisotropy", "label_conflict", "frequency"),
    ),
    (
        "IsoScore",
        "How evenly the variance fills the dimensions: 0 if it lies along one direction, 1 if it is equal in all.",
        ("isoscore",),
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
    ("Space", "The vectors of one model. Vectors of two models cannot be compared.", ("mixed_spaces",)),
    (
        "Barcode",
        "The distances at which the parts of a sample join into one; long bars show separate parts.",
        ("clusters",),
    ),
)
"""Term, explanation, and the findings that use the term; none if every page uses it."""


def render_glossary(findings: Collection[str]) -> Markup:
    """Return the section that explains the terms of these findings."""
    rows = [(term, words) for term, words, names in _TERMS if not names or any(name in findings for name in names)]
    return section("glossary", TITLE, render_definition_list(*rows))
