"""The studies by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from isoscope._core.errors import InputError

if TYPE_CHECKING:
    from isoscope.studies.study import Study

_MODULES = {
    "shrink-the-longest": ("shrink_the_longest", "ShrinkTheLongest"),
    "isotropy-clusters-classifiers": ("isotropy_clusters_classifiers", "IsotropyClustersClassifiers"),
    "clusters-and-manifolds": ("clusters_and_manifolds", "ClustersAndManifolds"),
    "stable-anisotropic-regularization": ("stable_anisotropic_regularization", "StableAnisotropicRegularization"),
    "isotropic-word-representation-in-bert": ("isotropic_word_representation", "IsotropicWordRepresentation"),
}

STUDIES = tuple(_MODULES)
"""Their names."""


def study(name: str) -> Study:
    """A study by its name.

    >>> study("stable-anisotropic-regularization").published.paper.year
    2024
    """
    if name not in _MODULES:
        raise InputError(f"no study is named {name}: there are {', '.join(STUDIES)}")
    module, kind = _MODULES[name]
    found: Study = getattr(import_module(f"isoscope.studies.{module}.study"), kind)()
    return found
