"""A linear classifier without iterations or tuning by hand: its predictions depend on the vectors alone."""

from __future__ import annotations

import numpy as np

_PENALTIES = 10.0 ** np.arange(-4, 2)  # relative to the mean variance


class LinearProbe:
    """Ridge regression on one-hot labels 0…c−1, with the penalty of the least leave-one-out error.

    That error has a closed form: with X = PVᵀ along the principal directions, the residual of row i when it is left out
    is its residual divided by 1 − hᵢ. An iterative probe would stop early in a badly scaled space and credit a repair
    with its convergence.
    """

    def __init__(self, X: np.ndarray, labels: np.ndarray):
        self.unit = float(max(np.abs(X).max(), np.finfo(np.float64).tiny))  # keeps squares in range
        X = X / self.unit
        self.mean = X.mean(axis=0, dtype=np.float64)
        centered = X - self.mean
        targets = np.eye(int(labels.max()) + 1)[labels]
        self.shares = targets.mean(axis=0)
        targets -= self.shares
        self.coefficients = np.zeros((X.shape[1], targets.shape[1]))
        self.left_out = np.zeros_like(targets) + self.shares
        if not centered.any():
            return
        variances, V = np.linalg.eigh(centered.T @ centered)
        variances = np.maximum(variances, 0)
        P = centered @ V
        along = P.T @ targets
        squares = P * P
        least = np.inf
        for penalty in _PENALTIES * float(variances.mean()):
            shrunk = 1 / (variances + penalty)
            weights = shrunk[:, None] * along
            leverage, fitted = squares @ shrunk, P @ weights
            residuals = (targets - fitted) / np.maximum(1 - 1 / len(X) - leverage, 1e-9)[:, None]
            if (error := float(np.sum(residuals**2))) < least:
                least, self.coefficients = error, V @ weights
                # the mean label stays that of all rows: without a row its own label would always be rarer
                self.left_out = self.shares + (fitted - leverage[:, None] * targets) / (1 - leverage)[:, None]

    def predict(self, Z: np.ndarray) -> np.ndarray:
        """Return the label of each row of Z."""
        return np.asarray(np.argmax((Z / self.unit - self.mean) @ self.coefficients + self.shares, axis=1))

    def leave_one_out(self) -> np.ndarray:
        """Return the label of each row of X as predicted by a probe that did not learn from that row."""
        return np.asarray(np.argmax(self.left_out, axis=1))
