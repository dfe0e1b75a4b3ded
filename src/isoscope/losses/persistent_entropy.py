"""Persistent entropy as a regularizer: it shrinks the longest bars of each class."""

from __future__ import annotations

import torch

from isoscope._core.arrays import check_real
from isoscope._core.errors import ParameterError
from isoscope.losses.regularizer import Regularizer
from isoscope.metrics.topology import h0_barcode, persistent_entropy, select_bars

MIN_ROWS = 3
"""The minimum number of rows of a class: with fewer, there are fewer than two bars."""


class PersistentEntropy(Regularizer):
    """A regularizer that evens out the gaps within each class: −weight · Σ_class E(bars of the class).

    The bars are the edge lengths of the minimum spanning tree of a class's states. E is their entropy, which is largest
    if all bars have the same length, so training shortens the longest edges. By default, the states are those of the
    first token in the last hidden layer.

    A class with fewer than 3 examples in the batch has fewer than two bars and adds nothing to the loss. The published
    code needs at least 5 examples and fails with fewer. Identical points produce bars of length 0, which have no
    gradient.

    Parameters
    ----------
    weight : float
        The weight of the term; 1 in the paper.
    select : bool
        Whether to use only the bars that `select_bars` selects as features, as the paper proposes; otherwise, all bars
        are used.
    per_class : bool
        Whether to sum over the classes in the labels; otherwise, the batch is treated as one class. Rows with the label
        −100 are ignored.
    noise_weight : float
        The weight of a term that maximizes the mean length of the unselected bars. The paper does not mention this
        term. The published code includes it with weight 0.5 and calls it L2; its notebook uses 0.05.

    Examples
    --------
    >>> import torch
    >>> from isoscope.losses import PersistentEntropy
    >>> states = torch.randn(64, 768, generator=torch.Generator().manual_seed(0), requires_grad=True)
    >>> loss = PersistentEntropy(select=False)(states, torch.arange(64) % 2)
    >>> loss.backward()
    >>> round(loss.item(), 2), bool(states.grad.isfinite().all())
    (-6.87, True)

    References
    ----------
    Kudrjashov et al., Shrink the longest: improving latent space isotropy with simplicial geometry, 2025.
    """

    def __init__(
        self, weight: float = 1.0, *, select: bool = True, per_class: bool = True, noise_weight: float = 0.0
    ) -> None:
        super().__init__(weight)
        self.select = select
        self.per_class = per_class
        self.needs_labels = per_class
        self.noise_weight = check_real(noise_weight, "noise_weight")
        if self.noise_weight and not select:
            raise ParameterError(
                f"noise_weight is {noise_weight}, but select=False leaves no unselected bars: set select=True or "
                "noise_weight=0"
            )

    def penalty(self, states: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        """Return the negative sum of the classes' entropies."""
        total = states.sum() * 0
        for rows in self._split_by_class(states, labels):
            self._see_states(rows)
            total = total - (self._entropy(rows) if len(rows) >= MIN_ROWS else self._skip_states(rows))
        return total

    def _split_by_class(self, states: torch.Tensor, labels: torch.Tensor | None) -> list[torch.Tensor]:
        if not self.per_class or labels is None:
            return [states]
        if labels.is_floating_point():
            raise ParameterError(
                f"labels have dtype {labels.dtype}: need integer class labels; "
                "without classes, use PersistentEntropy(per_class=False)"
            )
        labels = labels.long()  # in uint8, 156 would equal −100
        return [states[labels == label] for label in labels[labels != -100].unique().tolist()]

    def _entropy(self, rows: torch.Tensor) -> torch.Tensor:
        bars: torch.Tensor = h0_barcode(rows)  # longest first
        if not self.select:
            return persistent_entropy(bars)
        features = select_bars(bars)
        entropy: torch.Tensor = persistent_entropy(features)
        noise = bars[len(features) :]
        return entropy + self.noise_weight * noise.mean() if self.noise_weight and len(noise) else entropy

    def extra_repr(self) -> str:
        """Return the parameters to show in the module's repr."""
        noise = f", noise_weight={self.noise_weight:g}" if self.noise_weight else ""
        return f"{super().extra_repr()}, select={self.select}, per_class={self.per_class}{noise}"

    def format_skipped(self) -> str:
        """Return the reason why rows are usually skipped, and the remedy, as text for a warning."""
        if not self.per_class:
            return super().format_skipped()
        return (
            f"their class has fewer than {MIN_ROWS} rows in the batch: use larger batches or batches with several rows "
            "of each class (finetune: group_classes=True or --group-classes), or treat the batch as one class "
            "(per_class=False; finetune: --whole-batch)"
        )

    def _format_missing_labels(self) -> str:
        return (
            f"{super()._format_missing_labels()}: pass labels, or use PersistentEntropy(per_class=False) to treat the "
            "batch as one class"
        )
