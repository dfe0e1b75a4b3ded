"""Small datasets with a task, and a repair that records what it was fitted to."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from isoscope.advising.task import Rows
from isoscope.engines.engine import sketch
from isoscope.transforms.repair import Repair


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread: k-means of a small dataset spends most of its time waiting for threads."""
    with threadpool_limits(1):
        yield


def silent(stage: str, rows: int, share: float) -> None:
    """Ignore the progress."""


def rows_of(X: Any) -> Rows:
    """Return all rows of an array, as `gather` would."""
    X = np.asarray(X)
    return Rows(X, np.arange(len(X)), len(X), sketch(X), np.ones(len(X), bool))


class Recording(Repair):
    """A repair that changes nothing and records every array, but no store, that it was fitted to."""

    _fitted_attribute = "fitted_"
    seen: ClassVar[list[np.ndarray]] = []

    def fit(self, X: Any, y: Any = None) -> Recording:
        if isinstance(X, np.ndarray):
            self.seen.append(X.copy())
        self.n_features_in_ = X.shape[1] if isinstance(X, np.ndarray) else X.dim
        self.fitted_ = True
        return self

    def _apply(self, xp: Any, X: Any) -> Any:
        return X


@pytest.fixture
def recording() -> Recording:
    Recording.seen.clear()
    return Recording()


def topics(rng: np.random.Generator, n: int = 200, d: int = 8, k: int = 4, noise: float = 0.4) -> tuple[Any, Any]:
    """Return clusters centered on the axes, and the cluster of each row."""
    of = np.arange(n) % k
    return np.eye(d)[of] + noise * rng.standard_normal((n, d)), of
