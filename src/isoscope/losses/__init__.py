"""Torch regularizers that preserve, raise or lower the isotropy of an embedding space when added to a task's loss."""

from typing import TYPE_CHECKING

from isoscope._lazy import lazy_package

if TYPE_CHECKING:
    from isoscope.losses.cosreg import CosReg as CosReg
    from isoscope.losses.istar import IStar as IStar
    from isoscope.losses.persistent_entropy import PersistentEntropy as PersistentEntropy
    from isoscope.losses.regularizer import Regularizer as Regularizer
    from isoscope.losses.unbiased_isoscore import UnbiasedIsoScore as UnbiasedIsoScore
else:
    __getattr__, __dir__, __all__ = lazy_package(
        __name__,
        {
            "regularizer": ["Regularizer"],
            "istar": ["IStar"],
            "unbiased_isoscore": ["UnbiasedIsoScore"],
            "cosreg": ["CosReg"],
            "persistent_entropy": ["PersistentEntropy"],
        },
    )
