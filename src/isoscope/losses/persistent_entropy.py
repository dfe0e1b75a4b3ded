"""Persistent entropy of the bars of each class, to be made large: shrink the longest."""

from __future__ import annotations

import torch

from isoscope._core.arrays import check_real
from isoscope._core.errors import InputError
from isoscope.losses.regularizer import Regularizer
from isoscope.metrics.topology import h0_barcode, persistent_entropy, select_bars


class PersistentEntropy(Regularizer):
    """Makes the gaps inside each class alike: −weight · Σ_class E(bars of that class).

    The bars are the lengths of the minimum spanning tree of a class's states, and E their entropy, largest when all are
    equal: the longest edges shrink and no direction runs away. The states are those of the last hidden layer's first
    token.

    A class with fewer than 3 examples in the batch has no two bars to compare and adds nothing (the published code
    needs 5, and crashes below). Equal points have bars of length 0, which pull at nothing.

    Parameters
    ----------
    weight : float
        1 in the paper.
    select : bool
        Only the bars that are features (`select_bars`), as the paper proposes; False takes all.
    per_class : bool
        Sum over the classes of the labels; False takes the batch as one cloud. Labels of −100 are left out.
    noise_weight : float
        Also makes the mean length of the bars that were not selected large, with this weight. The paper does not
        mention it; the published code does so with 0.5, calls it L2, and its notebook takes 0.05.

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
            raise InputError("noise_weight is for the bars that were not selected: select=False leaves none")

    def penalty(self, states: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        """Minus the entropies, summed over the classes."""
        total = states.sum() * 0
        for cloud in self._split_by_class(states, labels):
            self.seen += 1
            total = total - (self._entropy(cloud) if len(cloud) > 2 else self._skip_states(cloud))
        return total

    def _split_by_class(self, states: torch.Tensor, labels: torch.Tensor | None) -> list[torch.Tensor]:
        if not self.per_class or labels is None:
            return [states]
        if labels.is_floating_point():
            raise InputError(
                f"labels have dtype {labels.dtype}: need whole numbers, one for each class; "
                "where there are no classes, PersistentEntropy(per_class=False)"
            )
        labels = labels.long()  # as bytes, 156 would be −100
        return [states[labels == label] for label in labels[labels != -100].unique().tolist()]

    def _entropy(self, cloud: torch.Tensor) -> torch.Tensor:
        bars: torch.Tensor = h0_barcode(cloud)  # longest first
        if not self.select:
            return persistent_entropy(bars)
        features = select_bars(bars)
        entropy: torch.Tensor = persistent_entropy(features)
        noise = bars[len(features) :]
        return entropy + self.noise_weight * noise.mean() if self.noise_weight and len(noise) else entropy

    def extra_repr(self) -> str:
        """What stands between the brackets when the module is printed."""
        noise = f", noise_weight={self.noise_weight:g}" if self.noise_weight else ""
        return f"{super().extra_repr()}, select={self.select}, per_class={self.per_class}{noise}"

    def _format_missing_labels(self) -> str:
        return (
            f"{super()._format_missing_labels()}: give labels, or PersistentEntropy(per_class=False) for the "
            "batch as one cloud"
        )
