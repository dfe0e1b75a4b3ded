"""I-STAR: IsoScore* as a regularizer, stabilized by the covariance of a large sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from isoscope._core.arrays import check_points, check_real, to_numpy
from isoscope._core.errors import ParameterError, ShapeError
from isoscope.losses.regularizer import Regularizer
from isoscope.metrics.spectra import isoscore, isoscore_star
from isoscope.sketching.sketch import Sketch

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


class IStar(Regularizer):
    """A regularizer that raises or lowers the IsoScore* of the token states of all layers: weight · (1 − IsoScore*).

    IsoScore* is the IsoScore of (1−ζ)Σ_X + ζΣ_S, where Σ_X is the covariance of the batch. Σ_S is the covariance of a
    large sample of the same states. The gradient flows through Σ_X only. Positive weights raise isotropy. Negative
    weights lower it, which improved the results in the authors' experiments.

    Σ_S becomes outdated as the model learns. `attach(...).follow(trainer)` recomputes it at each epoch from at least
    250,000 token states of the training set, in evaluation mode. It excludes padding, which the published code
    includes. In your own training loop, call `attachment.refresh(loader)`.

    Parameters
    ----------
    weight : float
        The weight λ of the term.
    zeta : float
        The weight ζ of Σ_S; if it is 0, Σ_S is not needed.

    Examples
    --------
    >>> import torch
    >>> from isoscope.losses import IStar
    >>> states = torch.randn(64, 768, generator=torch.Generator().manual_seed(0))
    >>> loss = IStar(weight=1, zeta=0.75)
    >>> loss.refresh(torch.eye(768))
    >>> round(float(loss(states)), 2)
    0.43

    References
    ----------
    Rudman and Eickhoff, Stable anisotropic regularization, 2024.
    """

    layer = "all"
    pool = "tokens"
    together = True

    def __init__(self, weight: float = 1.0, zeta: float = 0.2) -> None:
        super().__init__(weight)
        self.zeta = check_real(zeta, "zeta")
        if not 0 <= self.zeta <= 1:
            raise ParameterError(f"zeta is {zeta}: need a number in [0, 1]")
        self.shrinkage: torch.Tensor | None
        self.register_buffer("shrinkage", None)

    def refresh(self, covariance: Array | Sketch) -> None:
        """Set Σ_S from a covariance matrix of shape (d, d), or from a `Sketch` of the states."""
        matrix = covariance.covariance() if isinstance(covariance, Sketch) else covariance
        values = to_numpy(check_points(matrix, name="covariance")[1])
        if values.shape[0] != values.shape[1]:
            raise ShapeError(f"the covariance has shape {values.shape}: need shape (d, d), or a Sketch of the states")
        self.shrinkage = torch.tensor(values, dtype=torch.float32)

    def penalty(self, states: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        """Return 1 − IsoScore*."""
        self._see_states(states)
        if len(states) < 2:
            return self._skip_states(states)
        if self.zeta == 0:
            if not bool((states[1:] != states[:1]).any()):
                return self._skip_states(states)
            return 1 - isoscore(states)
        if self.shrinkage is None:
            raise ParameterError(
                "IStar has no shrinkage covariance yet: call attachment.follow(trainer), which computes it at each "
                "epoch; in your own training loop, call attachment.refresh(loader); or set zeta=0"
            )
        if self.shrinkage.device != states.device:
            self.shrinkage = self.shrinkage.to(states.device)
        return 1 - isoscore_star(states, self.shrinkage, self.zeta)

    def extra_repr(self) -> str:
        """Return the parameters to show in the module's repr."""
        return f"{super().extra_repr()}, zeta={self.zeta:g}"
