"""Repairs of an embedding space as scikit-learn transformers: fit on a corpus, apply to the corpus and the queries."""

from typing import TYPE_CHECKING

from isoscope._lazy import lazy_package

if TYPE_CHECKING:
    from isoscope.transforms.affine import AllButTheTop as AllButTheTop
    from isoscope.transforms.affine import Center as Center
    from isoscope.transforms.affine import Standardize as Standardize
    from isoscope.transforms.affine import Whiten as Whiten
    from isoscope.transforms.apply import repair_store as repair_store
    from isoscope.transforms.chain import Chain as Chain
    from isoscope.transforms.clustered import ClusterCenter as ClusterCenter
    from isoscope.transforms.clustered import ClusterNull as ClusterNull
    from isoscope.transforms.persistence import load_transform as load_transform
    from isoscope.transforms.quantize import Quantizer as Quantizer
    from isoscope.transforms.repair import Repair as Repair
else:
    __getattr__, __dir__, __all__ = lazy_package(
        __name__,
        {
            "repair": ["Repair"],
            "affine": ["AllButTheTop", "Center", "Standardize", "Whiten"],
            "clustered": ["ClusterCenter", "ClusterNull"],
            "chain": ["Chain"],
            "quantize": ["Quantizer"],
            "persistence": ["load_transform"],
            "apply": ["repair_store"],
        },
    )
