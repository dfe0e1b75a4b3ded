"""CosReg: the mean cosine as a regularizer."""

from __future__ import annotations

import torch

from isoscope.losses.regularizer import Regularizer
from isoscope.metrics.cosine import mean_cosine


class CosReg(Regularizer):
    """A regularizer that spreads the directions of the states: weight · (mean cosine of all pairs of rows).

    Positive weights push vectors apart; negative weights pull them together. The mean is exact, over all pairs.
    A low mean cosine does not prove isotropy: centering alone makes it 0, regardless of the spectrum.

    Parameters
    ----------
    weight : float
        The weight λ of the term. With the weight 1, as in the paper, the term can lower the score of the task.
    reference : bool
        Whether to divide the sum of the n(n−1) cosines by n², as the published code does, instead of n(n−1).

    Examples
    --------
    >>> import torch
    >>> from isoscope.losses import CosReg
    >>> states = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]], requires_grad=True)
    >>> loss = CosReg(weight=0.5)(states)
    >>> loss.backward()
    >>> round(loss.item(), 4), states.grad.shape
    (0.2357, torch.Size([3, 2]))

    References
    ----------
    Cai et al., Isotropy in the contextual embedding space: clusters and manifolds, 2021; as a regularizer in
    Rudman and Eickhoff, Stable anisotropic regularization, 2024.
    """

    def __init__(self, weight: float = 0.1, *, reference: bool = False) -> None:
        super().__init__(weight)
        self.reference = reference

    def penalty(self, states: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        """Return the mean cosine of all pairs."""
        n = len(states)
        self._see_states(states)
        if n < 2:
            return self._skip_states(states)
        mean: torch.Tensor = mean_cosine(states)
        return mean * ((n - 1) / n) if self.reference else mean

    def extra_repr(self) -> str:
        """Return the parameters to show in the module's repr."""
        return super().extra_repr() + (", reference=True" if self.reference else "")
