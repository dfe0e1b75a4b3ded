"""IsoScore itself as a penalty: unbiased on a batch, without a covariance to keep."""

from __future__ import annotations

import torch

from isoscope._core.grouped_traces import MIN_GROUPS
from isoscope.losses.regularizer import Regularizer
from isoscope.metrics.spectra import isoscore


class UnbiasedIsoScore(Regularizer):
    """Makes the variance fill all dimensions evenly: weight · max(0, 1 − s), with s the unbiased IsoScore of the batch.

    Positive weights raise isotropy, negative ones lower it. The plug-in score of a batch says more about the size of
    the batch than about the space, which is why I-STAR mixes in a covariance of a large sample; this estimator needs
    none. Below 1 the term is linear in s, so that its mean over batches is that of the whole space. A batch can be
    bent to read above 1, where there is nothing to gain: the term ends there.

    The tokens of one text are not independent. On token states (``pool="tokens"``) `attach` gives each token's text as
    its group, and the score uses only rows of different texts. Without groups it assumes independent rows.

    Batches of fewer than 4 rows or 4 texts, or of equal rows, add nothing.

    Parameters
    ----------
    weight : float
        λ.

    Examples
    --------
    >>> import torch
    >>> from isoscope.losses import UnbiasedIsoScore
    >>> noise = torch.randn(64, 768, generator=torch.Generator().manual_seed(0))
    >>> line = noise[:, :1] * torch.ones(768) + 0.01 * noise
    >>> round(float(UnbiasedIsoScore()(line)), 2), float(UnbiasedIsoScore()(noise)) < 0.1
    (1.0, True)

    References
    ----------
    Himeno and Yamada, Estimations for some functions of covariance matrix in high dimension, 2014.
    Chun, Canatar, Chung and Lee, Estimating dimensionality of neural representations from finite samples, ICLR 2026.
    """

    takes_groups = True

    def penalty(
        self, states: torch.Tensor, labels: torch.Tensor | None, groups: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return how far the score is below 1."""
        self.seen += 1
        independent = len(states) if groups is None else len(groups.unique())
        if independent < MIN_GROUPS or not bool((states[1:] != states[:1]).any()):
            return self._skip_states(states)
        score: torch.Tensor = isoscore(states, unbiased=True, groups=groups)
        return torch.relu(1 - score)
