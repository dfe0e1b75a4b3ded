"""A linear classifier that needs no tuning by hand and no iterations: its answer depends on the vectors alone."""

from __future__ import annotations

import numpy as np

_PENALTIES = 10.0 ** np.arange(-4, 2)  # of the mean variance


def linear_probe(X: np.ndarray, labels: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """The label that ridge regression on X gives to each row of Z; labels are 0…c−1.

    The penalty is the one with the least leave-one-out error, which has a closed form: with X = PVᵀ along the
    principal directions, the error of row i is that of the fit divided by 1 − hᵢ. An iterative probe would stop early
    on a badly scaled space, and praise a repair for its convergence.
    """
    unit = float(max(np.abs(X).max(), np.finfo(np.float64).tiny))  # squares shall stay in range
    X, Z = X / unit, Z / unit
    mean = X.mean(axis=0, dtype=np.float64)
    centred = X - mean
    if not centred.any():
        return np.full(len(Z), np.bincount(labels).argmax())
    wanted = np.eye(int(labels.max()) + 1)[labels]
    share = wanted.mean(axis=0)
    wanted -= share
    variances, V = np.linalg.eigh(centred.T @ centred)
    variances = np.maximum(variances, 0)
    P = centred @ V
    along = P.T @ wanted
    squares = P * P
    least, weights = np.inf, np.zeros_like(along)
    for penalty in _PENALTIES * float(variances.mean()):
        shrunk = 1 / (variances + penalty)
        fitted = shrunk[:, None] * along
        leverage = 1 / len(X) + squares @ shrunk
        error = float(np.sum(((wanted - P @ fitted) / np.maximum(1 - leverage, 1e-9)[:, None]) ** 2))
        if error < least:
            least, weights = error, fitted
    return np.asarray(np.argmax((Z - mean) @ (V @ weights) + share, axis=1))
