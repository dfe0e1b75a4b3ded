"""Small corpora with judgments, for the tests of thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


@pytest.fixture
def topics() -> dict[str, Any]:
    """600 rows of 30 topics, and 120 queries about them."""
    rng = np.random.default_rng(3)
    centers = rng.standard_normal((30, 24))
    topic = rng.integers(0, 30, 600)
    rows = centers[topic] + 0.5 * rng.standard_normal((600, 24))
    of = rng.integers(0, 30, 120)
    queries = centers[of] + rng.uniform(0.2, 1.2, (120, 1)) * rng.standard_normal((120, 24))
    qrels = {str(i): {str(row): 1 for row in np.flatnonzero(topic == each)} for i, each in enumerate(of)}
    return {"rows": rows, "topic": topic, "queries": queries, "qrels": qrels, "of": of}


@pytest.fixture
def pairs() -> dict[str, Any]:
    """1,200 independent pairs: a third are matches, which are close."""
    rng = np.random.default_rng(5)
    first = rng.standard_normal((1200, 16))
    is_match = rng.random(1200) < 1 / 3
    near = first + 0.6 * rng.standard_normal((1200, 16))
    second = np.where(is_match[:, None], near, rng.standard_normal((1200, 16)))
    a, b = np.arange(1200), np.arange(1200, 2400)
    return {"rows": np.concatenate([first, second]), "pairs": (a, b, is_match.astype(float)), "is_match": is_match}


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)
