"""The unbiased IsoScore of a batch as a regularizer."""

from __future__ import annotations

import torch

from isoscope._core.grouped_traces import MIN_GROUPS
from isoscope.losses.regularizer import Regularizer
from isoscope.metrics.spectra import isoscore


class UnbiasedIsoScore(Regularizer):
    """A regularizer that raises or lowers the unbiased IsoScore s of the batch: weight · max(0, 1 − s).

    Positive weights raise isotropy; negative weights lower it. The plug-in IsoScore of a small batch depends mostly on
    the batch size, so I-STAR adds the covariance of a large sample. The unbiased estimate needs no such covariance.
    Below 1, the term is linear in s, so its mean over batches estimates the value for the complete data. Training can
    push the estimate of a batch above 1, where a further increase has no benefit, so the term is 0 there.

    The tokens of one text are not independent. With ``pool="tokens"``, `attach` passes the text of each token as its
    group, and the score compares only tokens of different texts. Without groups, it assumes independent rows.

    Batches with fewer than 4 rows, with fewer than 4 texts, or with all rows equal add nothing to the loss.

    Parameters
    ----------
    weight : float
        The weight λ of the term. With the weight 0.1, the term can lower the score of the task;
        with the weight 1, it can prevent a model from learning.

    Examples
    --------
    >>> import torch
    >>> from isoscope.losses import UnbiasedIsoScore
    >>> noise = torch.randn(64, 768, generator=torch.Generator().manual_seed(0))
    >>> line = noise[:, :1] * torch.ones(768) + 0.01 * noise
    >>> round(float(UnbiasedIsoScore(weight=0.1)(line)), 2), float(UnbiasedIsoScore(weight=0.1)(noise)) < 0.01
    (0.1, True)

    References
    ----------
    Himeno and Yamada, Estimations for some functions of covariance matrix in high dimension, 2014.
    Chun, Canatar, Chung and Lee, Estimating dimensionality of neural representations from finite samples, ICLR 2026.
    """

    takes_groups = True

    def __init__(self, weight: float = 0.01) -> None:
        super().__init__(weight)

    def penalty(
        self, states: torch.Tensor, labels: torch.Tensor | None, groups: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return max(0, 1 − s)."""
        self._see_states(states)
        independent = len(states) if groups is None else len(groups.unique())
        if independent < MIN_GROUPS or not bool((states[1:] != states[:1]).any()):
            return self._skip_states(states)
        score: torch.Tensor = isoscore(states, unbiased=True, groups=groups)
        return torch.relu(1 - score)
