"""Samplers that decide which rows share a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler

_POOL = 50
"""The number of batches sorted together: enough to reduce padding, but few enough to vary batches between epochs."""


class _EpochSampler(Sampler[int]):  # type: ignore[misc]
    """A sampler whose order depends on a seed and the epoch."""

    def __init__(self, rows: int, batch_size: int, seed: int) -> None:
        self.rows, self.batch_size, self.seed, self.epoch = rows, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order; a resumed run also sets it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[int]:
        return (int(row) for row in self.order(np.random.default_rng((self.seed, self.epoch))))

    def order(self, random: np.random.Generator) -> Iterator[int]:
        """Yield the rows in the order of an epoch."""
        raise NotImplementedError


class LengthGroupedSampler(_EpochSampler):
    """A sampler that shuffles rows in each epoch so that the rows of a batch have similar lengths.

    Parameters
    ----------
    lengths : sequence of int
        The number of tokens of each row.
    batch_size : int
        The number of rows in a batch.
    seed : int
        Random seed for the order.

    Examples
    --------
    >>> sampler = LengthGroupedSampler([9, 1, 8, 2, 7], batch_size=2, seed=0)
    >>> order = list(sampler)
    >>> sorted(order), {9, 8} in [{[9, 1, 8, 2, 7][i] for i in order[start : start + 2]} for start in (0, 2)]
    ([0, 1, 2, 3, 4], True)
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        super().__init__(len(lengths), batch_size, seed)
        self.lengths = np.asarray(lengths)

    def order(self, random: np.random.Generator) -> Iterator[int]:
        """Yield the rows in the order of an epoch; a smaller batch comes last."""
        order = random.permutation(len(self.lengths))
        whole = len(order) // self.batch_size * self.batch_size
        batches: list[np.ndarray] = []
        for start in range(0, whole, _POOL * self.batch_size):
            pool = order[start : min(start + _POOL * self.batch_size, whole)]
            pool = pool[np.argsort(-self.lengths[pool], kind="stable")]
            batches += np.split(pool, len(pool) // self.batch_size)
        random.shuffle(batches)
        yield from (i for batch in (*batches, order[whole:]) for i in batch)


_GROUP = 4
"""The minimum number of rows of a class in a batch, which gives a minimum spanning tree three edges."""


class ClassGroupedSampler(_EpochSampler):
    """A sampler that shuffles rows in each epoch so that a class has several rows in a batch, or none.

    Each row occurs once in an epoch. If a class has fewer rows left than a group needs, they form a smaller group.

    Parameters
    ----------
    labels : sequence of int
        The class of each row.
    batch_size : int
        The number of rows in a batch.
    seed : int
        Random seed for the order.

    Examples
    --------
    >>> labels = [0, 1, 2, 3] * 4
    >>> order = list(ClassGroupedSampler(labels, batch_size=8, seed=0))
    >>> sorted(order) == list(range(16)), len({labels[i] for i in order[:8]})
    (True, 2)
    """

    def __init__(self, labels: Sequence[int], batch_size: int, seed: int) -> None:
        super().__init__(len(labels), batch_size, seed)
        self.labels = np.asarray(labels)

    def order(self, random: np.random.Generator) -> Iterator[int]:
        """Yield the rows in the order of an epoch."""
        classes, codes = np.unique(self.labels, return_inverse=True)
        shuffled = random.permutation(len(codes))
        left = [list(shuffled[codes[shuffled] == code]) for code in range(len(classes))]
        room, group = self.batch_size, max(_GROUP, self.batch_size // len(classes))
        while any(left):
            sizes = np.array([len(rows) for rows in left])
            chosen = int(random.choice(len(left), p=sizes / sizes.sum()))
            taken = self._group_size(int(sizes[chosen]), room, group)
            yield from left[chosen][:taken]
            left[chosen] = left[chosen][taken:]
            room = room - taken or self.batch_size

    def _group_size(self, rows: int, room: int, group: int) -> int:
        """Return how many rows of a class to take, avoiding small leftovers in the class and in the batch."""
        taken = min(room, rows if rows < 2 * group else group)
        return min(room, rows) if room - taken < _GROUP else taken
