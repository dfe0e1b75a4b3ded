"""The order in which rows are learnt from: batches of texts of like length are padded little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Sampler
from transformers import Trainer

_POOL = 50
"""Batches whose rows are sorted together: enough for little padding, few enough for batches that differ by epoch."""


class LengthGroupedSampler(Sampler[int]):  # type: ignore[misc]
    """Rows in another random order in each epoch, so that those of a batch are of like length.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each row.
    batch_size : int
        Rows of a batch.
    seed : int
        Of the order.

    Examples
    --------
    >>> sampler = LengthGroupedSampler([9, 1, 8, 2, 7], batch_size=2, seed=0)
    >>> order = list(sampler)
    >>> sorted(order), {9, 8} in [{[9, 1, 8, 2, 7][i] for i in order[start : start + 2]} for start in (0, 2)]
    ([0, 1, 2, 3, 4], True)
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed, self.epoch = np.asarray(lengths), batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Which epoch it is: one that a run goes on in has the order that it would have had."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng((self.seed, self.epoch))
        order = random.permutation(len(self.lengths))
        whole = len(order) // self.batch_size * self.batch_size
        batches: list[np.ndarray] = []
        for start in range(0, whole, _POOL * self.batch_size):
            pool = order[start : min(start + _POOL * self.batch_size, whole)]
            pool = pool[np.argsort(-self.lengths[pool], kind="stable")]
            batches += np.split(pool, len(pool) // self.batch_size)
        random.shuffle(batches)
        yield from (int(i) for batch in (*batches, order[whole:]) for i in batch)  # a smaller batch can but be the last


class LengthGroupedTrainer(Trainer):
    """A Trainer whose batches hold texts of like length."""

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:
        rows: Any = self.train_dataset if train_dataset is None else train_dataset
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return LengthGroupedSampler([len(row["input_ids"]) for row in rows], self.args.train_batch_size, seed)
