"""The measurements as torch regularisers: what is added to a task's loss to keep, raise or lower isotropy."""

from isoscope._core.errors import MissingExtra

try:
    import torch  # noqa: F401 - said here in one line, and not from somewhere deep inside
except ImportError as error:
    raise MissingExtra('the losses need torch, which is not installed: pip install "isoscope[train]"') from error

from isoscope.losses.cosreg import CosReg
from isoscope.losses.istar import IStar
from isoscope.losses.persistent_entropy import PersistentEntropy
from isoscope.losses.regularizer import Regularizer
from isoscope.losses.unbiased_isoscore import UnbiasedIsoScore

__all__ = ["CosReg", "IStar", "PersistentEntropy", "Regularizer", "UnbiasedIsoScore"]
