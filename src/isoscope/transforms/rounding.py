"""Codes of vectors: how numbers are rounded to few bits, packed into bytes and decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import ParameterError, TooFewRowsError, plural

CENTROIDS = 256
"""The number of centroids per subvector in product quantization; the code of a subvector is one byte."""

_SCALE_BYTES = 4  # the float32 scale of a vector
_TRAINING_ROWS = 16 * CENTROIDS  # with more rows or rounds, recall@10 is the same within 0.01
_TRAINING_ROUNDS = 8
_TILE_ROWS = 512  # their products with all centroids fit into the cache


class Rounding(ABC):
    """The rounding of a fitted quantizer: between projected vectors (float32) and codes (bytes).

    `arrays` are the fitted arrays that `learn` returned, and `width` is the number of dimensions.
    """

    def __init__(self, precision: str, scale: str, width: int, subvectors: int | None, arrays: Mapping[str, Any]):
        self.precision, self.scale, self.width, self.arrays = precision, scale, width, arrays
        self.subvectors = subvectors or max(1, width // 8)

    @property
    @abstractmethod
    def code_size(self) -> int:
        """The number of bytes per vector."""

    def learn(self, Z: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        """Return the fitted arrays that the rounding needs, by name."""
        return {}

    @abstractmethod
    def encode(self, Z: np.ndarray) -> np.ndarray:
        """Return the codes of projected vectors, as bytes of shape (n, code_size)."""

    @abstractmethod
    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Decode codes into projected vectors, in float32."""

    def round_trip(self, Z: np.ndarray) -> np.ndarray:
        """Return the projected vectors after encoding and decoding."""
        return self.decode(self.encode(Z))


class FloatRounding(Rounding):
    """Floating-point numbers of 32 or 16 bits."""

    @property
    def _dtype(self) -> np.dtype:
        return np.dtype("<f4" if self.precision == "float32" else "<f2")

    @property
    def code_size(self) -> int:
        """The number of bytes per vector."""
        return self.width * self._dtype.itemsize

    def learn(self, Z: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        """Check that the numbers are in range; nothing is learned."""
        self._check_range(Z)
        return {}

    def encode(self, Z: np.ndarray) -> np.ndarray:
        """Return the codes of projected vectors."""
        self._check_range(Z)
        return np.ascontiguousarray(Z, self._dtype).view(np.uint8)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Decode codes into projected vectors."""
        return np.ascontiguousarray(codes).view(self._dtype).astype(np.float32)

    def _check_range(self, Z: np.ndarray) -> None:
        largest = float(np.abs(Z).max(initial=0))
        if largest > float(np.finfo(self._dtype).max):
            raise ParameterError(
                f"a vector contains {largest:.3g}, which exceeds the range of {self.precision}: rescale the "
                "vectors or choose another precision"
            )


class RangeRounding(Rounding):
    """Integers of 8 or 4 bits on a range from the smallest to the largest value: per coordinate, or one for all.

    The codes equal those of faiss's scalar quantizers QT_8bit, QT_4bit, QT_8bit_uniform and QT_4bit_uniform, except
    that at most 1 in 10,000 values, at the border of two levels, is rounded differently.
    """

    @property
    def _levels(self) -> int:
        return 255 if self.precision == "int8" else 15

    @property
    def code_size(self) -> int:
        """The number of bytes per vector."""
        return self.width if self.precision == "int8" else -(-self.width // 2)

    def learn(self, Z: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        """Return the ends of the range."""
        axis = 0 if self.scale == "coordinate" else None
        low, high = np.atleast_1d(Z.min(axis=axis)), np.atleast_1d(Z.max(axis=axis))
        return {"low_": low.astype(np.float32), "span_": (high - low).astype(np.float32)}

    def encode(self, Z: np.ndarray) -> np.ndarray:
        """Return the codes of projected vectors; values outside the range are clipped."""
        codes = self._to_levels(Z).astype(np.uint8)
        return codes if self.precision == "int8" else pack_nibbles(codes)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Decode codes into projected vectors: the middle of each interval."""
        if self.precision == "int4":
            codes = unpack_nibbles(codes, self.width)
        return self._from_levels(codes.astype(np.float32))

    def round_trip(self, Z: np.ndarray) -> np.ndarray:
        """Return the projected vectors after encoding and decoding, without packing the codes."""
        return self._from_levels(self._to_levels(Z))

    def _to_levels(self, Z: np.ndarray) -> np.ndarray:
        low, span = self.arrays["low_"], self.arrays["span_"]
        levels = np.subtract(Z, low, dtype=np.float32)
        levels /= np.where(span > 0, span, np.float32(1))
        levels *= span > 0
        np.clip(levels, 0, 1, out=levels)
        levels *= np.float32(self._levels)
        return np.asarray(np.trunc(levels, out=levels))

    def _from_levels(self, levels: np.ndarray) -> np.ndarray:
        levels += np.float32(0.5)
        levels /= np.float32(self._levels)
        levels *= self.arrays["span_"]
        levels += self.arrays["low_"]
        return levels


class VectorRounding(Rounding):
    """Signed integers of 8 or 4 bits times a float32 scale per vector: the largest magnitude of the vector."""

    @property
    def _largest(self) -> int:
        return 127 if self.precision == "int8" else 7

    @property
    def code_size(self) -> int:
        """The number of bytes per vector, including its scale."""
        return (self.width if self.precision == "int8" else -(-self.width // 2)) + _SCALE_BYTES

    def encode(self, Z: np.ndarray) -> np.ndarray:
        """Return the codes of projected vectors; the last four bytes are the scale."""
        scales, integers = self._to_integers(Z)
        if self.precision == "int8":
            codes = integers.astype(np.int8).view(np.uint8)
        else:
            codes = pack_nibbles((integers + 8).astype(np.uint8))
        return np.hstack([codes, scales.astype("<f4").view(np.uint8)])

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Decode codes into projected vectors."""
        integers = np.ascontiguousarray(codes[:, :-_SCALE_BYTES])
        scales = np.ascontiguousarray(codes[:, -_SCALE_BYTES:]).view("<f4")
        if self.precision == "int8":
            return np.asarray(integers.view(np.int8) * scales, np.float32)
        return np.asarray((unpack_nibbles(integers, self.width) - np.float32(8)) * scales, np.float32)

    def round_trip(self, Z: np.ndarray) -> np.ndarray:
        """Return the projected vectors after encoding and decoding, without packing the codes."""
        scales, integers = self._to_integers(Z)
        integers *= scales
        return integers

    def _to_integers(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scales = np.abs(Z).max(axis=1, keepdims=True).astype(np.float32) / np.float32(self._largest)
        integers = np.divide(Z, np.where(scales > 0, scales, np.float32(1)), dtype=np.float32)
        return scales, np.rint(integers, out=integers)


class BitRounding(Rounding):
    """One bit per coordinate: whether it is positive. Bits are compared by Hamming distance."""

    @property
    def code_size(self) -> int:
        """The number of bytes per vector."""
        return -(-self.width // 8)

    def encode(self, Z: np.ndarray) -> np.ndarray:
        """Return the codes of projected vectors; the first coordinate is the lowest bit of the first byte."""
        return np.packbits(Z > 0, axis=1, bitorder="little")

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return vectors of length 1 with entries ±1/√k; their cosine is 1 − 2·(Hamming distance)/k."""
        bits = np.unpackbits(np.ascontiguousarray(codes), axis=1, count=self.width, bitorder="little")
        return self._to_signs(bits.view(np.bool_))

    def round_trip(self, Z: np.ndarray) -> np.ndarray:
        """Return the projected vectors after encoding and decoding, without packing the codes."""
        return self._to_signs(Z > 0)

    def _to_signs(self, bits: np.ndarray) -> np.ndarray:
        one = np.float32(1 / np.sqrt(self.width))
        return np.where(bits, one, -one)


class ProductRounding(Rounding):
    """Product quantization: each subvector is replaced by the number of its nearest centroid, one byte each."""

    @property
    def code_size(self) -> int:
        """The number of bytes per vector."""
        return self.subvectors

    def learn(self, Z: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        """Return the centroids of every subvector, which k-means learns from a sample of the rows."""
        if len(Z) < CENTROIDS:
            raise TooFewRowsError(
                f"product quantization learns {CENTROIDS} centroids, but got {plural(len(Z), 'sample')}: need at least "
                f"{CENTROIDS} rows"
            )
        if self.width % self.code_size:
            raise ParameterError(
                f"n_subvectors is {self.code_size}, which does not divide the {self.width} dimensions: choose a divisor"
            )
        rows = np.random.default_rng(seed).permutation(len(Z))[:_TRAINING_ROWS]
        subvectors = np.ascontiguousarray(Z[rows], np.float32).reshape(len(rows), self.code_size, -1)
        return {"centroids_": np.stack([_find_centroids(subvectors[:, m]) for m in range(self.code_size)])}

    def encode(self, Z: np.ndarray) -> np.ndarray:
        """Return the codes of projected vectors: the number of the nearest centroid for each subvector."""
        centroids = self.arrays["centroids_"]
        codes = np.empty((len(Z), len(centroids)), np.uint8)
        subvectors = np.ascontiguousarray(Z, np.float32).reshape(-1, len(centroids), centroids.shape[2])
        for m, own in enumerate(centroids):
            codes[:, m] = _find_nearest(subvectors[:, m], own)
        return codes

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Decode codes into projected vectors: the concatenated centroids."""
        centroids = self.arrays["centroids_"]
        return np.asarray(centroids[np.arange(len(centroids)), codes].reshape(len(codes), -1))


def _find_nearest(X: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return the number of the nearest centroid for each row: that with the largest ⟨x, c⟩ − ‖c‖²/2."""
    k, d = centroids.shape
    factors = np.vstack([centroids.T, -np.einsum("cj,cj->c", centroids, centroids) / 2])
    nearest = np.empty(len(X), np.intp)
    rows, products = np.ones((_TILE_ROWS, d + 1), np.float32), np.empty((_TILE_ROWS, k), np.float32)
    for part in blocks(len(X), _TILE_ROWS):
        count = len(nearest[part])
        rows[:count, :d] = X[part]
        np.matmul(rows[:count], factors, out=products[:count])
        products[:count].argmax(axis=1, out=nearest[part])
    return nearest


def _find_centroids(X: np.ndarray) -> np.ndarray:
    """Return 256 centroids of rows in random order: Lloyd's k-means, which starts at the first rows.

    A centroid without rows stays where it is.
    """
    columns = np.ascontiguousarray(X.T, np.float64)
    centroids = np.array(X[:CENTROIDS], np.float32)
    for _ in range(_TRAINING_ROUNDS):
        nearest = _find_nearest(X, centroids)
        counts = np.bincount(nearest, minlength=CENTROIDS)
        sums = np.stack([np.bincount(nearest, column, minlength=CENTROIDS) for column in columns], axis=1)
        filled = counts > 0
        centroids[filled] = sums[filled] / counts[filled, None]
    return centroids


def build_rounding(
    precision: str, scale: str, width: int, subvectors: int | None, arrays: Mapping[str, Any]
) -> Rounding:
    """Return the rounding for a precision and a scale."""
    kinds: dict[str, Any] = {
        "float32": FloatRounding,
        "float16": FloatRounding,
        "bit": BitRounding,
        "pq": ProductRounding,
    }
    kind = kinds.get(precision, VectorRounding if scale == "vector" else RangeRounding)
    rounding: Rounding = kind(precision, scale, width, subvectors, arrays)
    return rounding


def pack_nibbles(codes: np.ndarray) -> np.ndarray:
    """Pack codes below 16 into bytes, two each; the first is the lower half.

    >>> pack_nibbles(np.array([[1, 2, 3]], np.uint8)).tolist()
    [[33, 3]]
    """
    if codes.shape[1] % 2:
        codes = np.pad(codes, ((0, 0), (0, 1)))
    return np.asarray(codes[:, ::2] | (codes[:, 1::2] << 4))


def unpack_nibbles(codes: np.ndarray, width: int) -> np.ndarray:
    """Unpack `width` codes per row that `pack_nibbles` packed."""
    halves = np.stack([codes & 15, codes >> 4], axis=2)
    return halves.reshape(len(codes), -1)[:, :width]
