"""The linear probe of the labels task, and its predictions after several repairs that share a decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from isoscope._core.arrays import blocks, nonzero_rows
from isoscope._core.threads import map_in_threads
from isoscope.transforms.affine import AffineRepair, Standardize
from isoscope.transforms.chain import Chain

if TYPE_CHECKING:
    from isoscope.transforms.repair import Repair

_PENALTIES = 10.0 ** np.arange(-4, 2)  # relative to the mean variance
_TILE_ROWS = 512  # rows that are processed together, so that intermediate results stay in the cache
_LARGEST_MIX = 1e-5  # largest relative change of the regularized scatter matrix by a shared basis, in every direction


class LinearProbe:
    """Ridge regression on one-hot labels 0…c−1, with the penalty that minimizes the leave-one-out error.

    This error has a closed form: the leave-one-out residual of row i is its residual divided by 1 − hᵢ, where hᵢ is the
    leverage of the row. An iterative probe would stop early in a badly scaled space, and repairs would get credit for
    better convergence.
    """

    def __init__(self, X: np.ndarray, labels: np.ndarray):
        self._rows = _LabeledRows(X, labels)
        self.coefficients = np.zeros((X.shape[1], len(self._rows.shares)))
        self.left_out = np.zeros((len(X), len(self._rows.shares))) + self._rows.shares
        if self._rows.variances.any():
            self._rows.rotate()
            weights = np.ones(X.shape[1])
            coefficients, self.left_out = self._rows.fit(weights, float(self._rows.variances.mean()))
            self.coefficients = self._rows.V @ coefficients

    def predict(self, Z: np.ndarray) -> np.ndarray:
        """Return the predicted label of each row of Z."""
        rows = self._rows
        return np.asarray(np.argmax((Z / rows.unit - rows.mean) @ self.coefficients + rows.shares, axis=1))

    def leave_one_out(self) -> np.ndarray:
        """Return the label of each row of X as predicted by a probe that was fitted without that row."""
        return np.asarray(np.argmax(self.left_out, axis=1))


class _LabeledRows:
    """Labeled rows, scaled and centered, with their principal components V and the variances along them.

    The components can be those of another scatter matrix, on which repairs of the rows are based.
    """

    def __init__(self, X: np.ndarray, labels: np.ndarray, basis: np.ndarray | None = None):
        self.unit = float(max(np.abs(X).max(), np.finfo(np.float64).tiny))  # keeps squares in range
        self.X, self.labels = X / self.unit, labels
        (n, d), c = X.shape, int(labels.max()) + 1
        self.mean = self.X.mean(axis=0, dtype=np.float64)
        self.shares = np.bincount(labels) / n
        # the sums use float64, and the products per row use the precision of X
        scatter, self.class_sums = np.zeros((d, d)), np.zeros((c, d))
        for part in blocks(n, 2 * _TILE_ROWS):
            centered = self.X[part] - self.mean
            scatter += centered.T @ centered
            self.class_sums += _membership(labels[part], c) @ centered
            self.X[part] = centered
        variances, self.V = np.linalg.eigh(scatter if basis is None else basis)
        self.scatter = np.diag(variances) if basis is None else self.V.T @ scatter @ self.V
        self.variances = np.maximum(np.diag(self.scatter), 0)

    def rotate(self) -> None:
        """Replace each row by its coordinates along the principal components."""
        V = self.V.astype(self.X.dtype)
        for part in blocks(len(self.X), 2 * _TILE_ROWS):
            self.X[part] = self.X[part] @ V

    def component_weights(self, matrix: np.ndarray) -> np.ndarray | None:
        """Return the factor by which a linear map multiplies the variance of each principal component.

        Return None if the map does more than this, or if the rows have other components. The difference is measured in
        the scatter matrix with the smallest penalty, which is all that the probe depends on.
        """
        mapped = self.V.T @ matrix
        inner = mapped @ mapped.T
        weights, deviations = np.diag(inner).copy(), np.sqrt(self.variances)
        own = weights * self.variances
        scale = np.sqrt(own + _PENALTIES[0] * own.sum() / matrix.shape[1])
        if not (np.isfinite(scale) & (scale > 0)).all():
            return None
        largest = min(_LARGEST_MIX, 4 * float(np.finfo(self.X.dtype).eps) ** 0.5)
        for mixed in (inner * deviations * deviations[:, None], self.scatter * np.sqrt(weights * weights[:, None])):
            mixed = mixed / scale / scale[:, None]
            np.fill_diagonal(mixed, 0)
            if not np.linalg.norm(mixed) <= largest:
                return None
        return weights

    def fit(self, weights: np.ndarray, mean_variance: float) -> tuple[np.ndarray, np.ndarray]:
        """Fit the probe to rotated rows whose coordinates are multiplied by √weights.

        Return the coefficients of the unweighted coordinates, and the leave-one-out prediction of each row.
        """
        n, c, dtype = len(self.X), len(self.shares), self.X.dtype
        along = self.V.T @ self.class_sums.T
        gains = weights[:, None] / (weights[:, None] * self.variances[:, None] + _PENALTIES * mean_variance)
        used = slice(*np.flatnonzero(weights)[[0, -1]] + [0, 1])  # the components that a repair keeps are consecutive
        each = (gains[used, :, None] * along[used, None, :]).reshape(-1, len(_PENALTIES) * c).astype(dtype)
        narrow_gains = gains[used].astype(dtype)
        targets = (np.eye(c) - self.shares).astype(dtype)
        leverages, errors = np.empty((n, len(_PENALTIES)), dtype), np.zeros(len(_PENALTIES))
        for part in blocks(n, _TILE_ROWS):
            P = self.X[part, used]
            residuals = (P @ each).reshape(len(P), len(_PENALTIES), c)
            residuals -= targets[self.labels[part], None]
            leverages[part] = (P * P) @ narrow_gains
            squares = np.einsum("ijk,ijk->ij", residuals, residuals)
            errors += np.sum(squares / np.maximum(1 - 1 / n - leverages[part], 1e-9) ** 2, axis=0, dtype=np.float64)
        best = int(np.argmin(errors))
        coefficients = gains[:, best, None] * along
        # keep the mean label of all rows: leaving out a row would always make its own label rarer
        left_out = np.zeros((n, c)) + self.shares
        for part in blocks(n, 2 * _TILE_ROWS):
            leverage = leverages[part, best, None]
            fitted = self.X[part, used] @ coefficients[used].astype(dtype)
            left_out[part] += (fitted - leverage * targets[self.labels[part]]) / (1 - leverage)
        return coefficients, left_out


def predict_with_shared_probes(X: np.ndarray, labels: np.ndarray, repairs: Sequence[Repair]) -> dict[int, np.ndarray]:
    """Return the leave-one-out predictions of the probe after each repair, by the position of the repair.

    Repairs that only scale or remove principal components of the rows share their decomposition and their coordinates:
    centering, whitening, removing the leading components. So do those of the standardized rows. Other repairs are
    missing from the result.
    """
    if X.dtype.itemsize < 4 or not nonzero_rows(X).all():  # repairs leave rows of zeros unchanged
        return {}
    families: dict[bytes, _Family] = {}
    for i, repair in enumerate(repairs):
        steps = repair.steps_ if type(repair) is Chain else [repair]
        if not all(isinstance(step, AffineRepair) for step in steps):
            continue
        first = steps[0] if steps and type(steps[0]) is Standardize else None
        rest = steps if first is None else steps[1:]
        matrix = np.eye(X.shape[1])
        for step in rest:
            matrix = matrix @ step.as_affine()[0]
        key = b"" if first is None else first.mean_.tobytes() + first.scale_.tobytes()
        family = families.setdefault(key, _Family(first))
        family.members.append((i, matrix))
        if rest and family.basis is None:
            family.basis = rest[0].sketch_.scatter
    found: dict[int, np.ndarray] = {}
    for family in families.values():
        is_finite = family.basis is None or np.isfinite(family.basis).all()  # or else its squares overflow
        if is_finite and len(family.members) > 1:
            moved = X if family.first is None else np.asarray(family.first.transform(X))
            found.update(_predict_family(_LabeledRows(moved, labels, family.basis), family.members))
    return found


@dataclass
class _Family:
    """Repairs that start with the same step, and the scatter matrix of the rows after this step."""

    first: Standardize | None
    basis: np.ndarray | None = None
    members: list[tuple[int, np.ndarray]] = field(default_factory=list)
    """The position of each repair, and the matrix of its remaining steps."""


def _predict_family(rows: _LabeledRows, members: list[tuple[int, np.ndarray]]) -> dict[int, np.ndarray]:
    """Return the predictions after each linear map that only scales principal components of the rows."""
    positions: dict[tuple[bytes, int], list[int]] = {}  # maps with equal weights have equal probes
    for i, matrix in members:
        weights = rows.component_weights(matrix)
        if weights is not None:
            positions.setdefault((weights.tobytes(), matrix.shape[1]), []).append(i)
    if sum(map(len, positions.values())) < 2:
        return {}
    rows.rotate()

    def predict(key: tuple[bytes, int]) -> np.ndarray:
        weights = np.frombuffer(key[0])
        return np.asarray(rows.fit(weights, float(weights @ rows.variances) / key[1])[1].argmax(axis=1))

    predicted = map_in_threads(predict, positions, len(positions))
    return {i: labels for same, labels in zip(positions.values(), predicted, strict=True) for i in same}


def _membership(labels: np.ndarray, classes: int) -> csr_array:
    """Return the matrix whose product with an array is the sum of its rows for each class."""
    return csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(classes, len(labels)))
