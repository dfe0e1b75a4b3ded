"""The threshold for a false-match rate among random pairs: counted, or extrapolated if tests on the rows permit it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from isoscope._core.arrays import blocks
from isoscope._core.errors import TooFewRowsError
from isoscope._core.threads import map_in_threads
from isoscope.thresholding.cuts import Share

HIGHEST_RATE = 0.5
"""The highest false-match rate that can be requested."""
_ROUNDING = 1e-6  # cosines that differ by less are equal
NEARLY_ONE = 1 - _ROUNDING
"""A pair with a higher cosine counts as a pair of copies."""
MIN_COUNT = 50
"""A rate is counted if at least this many pairs of the sample are above its threshold."""
TOLERANCE = 2.0
"""An extrapolation passes a test if the exact rate at its threshold is within this factor of the requested rate."""
TESTS = 20
"""The number of random parts of the rows on which an extrapolation is tested."""
MIN_PASSED = 0.9
"""The share of the tests that an extrapolation must pass."""

_EXCEEDANCES = 500  # the number of pairs that the tail is fitted to
_MOST_BEYOND = 100  # a rate is extrapolated to at most this many times below the lowest rate that can be counted
_LEAST_ROWS = 100  # rows in a part that a test fits the tail to
_BLOCK = 1_024  # rows of a tile of cosines
_PILOT = 2_000  # rows for a first estimate of the lowest cosine to keep
_KEPT = 20  # times as many pairs are kept as there are above the threshold, for the interval
_MOST_KEPT = 4_000_000  # pairs in memory
_MOST_NEEDED = 10_000_000  # a message does not ask for more rows
_CURVE_POINTS = 80


@dataclass(frozen=True)
class Tail:
    """The pairs of rows with the highest cosines, highest first."""

    cosines: np.ndarray
    first: np.ndarray
    second: np.ndarray
    sizes: tuple[int, int]
    """The number of rows on each side: equal for pairs within one set."""
    within: bool
    """Whether both rows of a pair come from the same set."""

    @property
    def pairs(self) -> int:
        """The number of all pairs."""
        return count_pairs(self.sizes, self.within)

    def of(self, rows: tuple[np.ndarray, np.ndarray]) -> Tail:
        """Return the tail of the pairs of some rows, given a mask for each side."""
        kept = rows[0][self.first] & rows[1][self.second]
        sizes = int(rows[0].sum()), int(rows[1].sum())
        return Tail(self.cosines[kept], self.first[kept], self.second[kept], sizes, self.within)

    def rate(self, count: int, confidence: float) -> Share:
        """Return `count` as a share of all pairs, with a confidence interval that treats the rows as random.

        Pairs that share a row are dependent: the variance is that of a U-statistic, from the counts of each row.
        """
        n, m = self.sizes
        value = count / self.pairs
        if self.within:
            degrees = np.bincount(self.first[:count], minlength=n) + np.bincount(self.second[:count], minlength=n)
            spread = float(np.var(degrees / (n - 1), ddof=1))
            of_rows = max(0.0, spread - value * (1 - value) / (n - 1))
            variance = 4 * (n - 2) / (n * (n - 1)) * of_rows + 2 * value * (1 - value) / (n * (n - 1))
        else:
            alone = value * (1 - value) / (n * m)
            sides = ((self.first, n, m), (self.second, m, n))
            each = (np.var(np.bincount(side[:count], minlength=a) / b, ddof=1) / a for side, a, b in sides)
            variance = max(float(sum(each)) - alone, alone)
        margin = float(norm.isf((1 - confidence) / 2)) * math.sqrt(variance) / max(value, 1e-300)
        return Share(value, value * math.exp(-margin), min(value * math.exp(margin), 1.0))


def count_pairs(sizes: tuple[int, int], within: bool) -> int:
    """Return the number of pairs of rows."""
    return sizes[0] * (sizes[0] - 1) // 2 if within else sizes[0] * sizes[1]


def collect_tail(rows: np.ndarray, others: np.ndarray | None, share: float, seed: int) -> Tail:
    """Return the pairs with the highest cosines, at least this share of all pairs; rows are unit vectors.

    Without `others`, the pairs are those within `rows`.
    """
    within = others is None
    columns = rows if others is None else others
    sizes = len(rows), len(columns)
    wanted = min(math.ceil(share * count_pairs(sizes, within)), count_pairs(sizes, within))
    rng = np.random.default_rng(seed)
    a, b = (side[rng.permutation(len(side))[:_PILOT]] for side in (rows, columns))
    pilot = np.sort((a @ b.T).ravel())
    times = 1.5
    while True:
        beyond = len(pilot) - 1 - math.ceil(times * share * len(pilot)) - (len(a) if within else 0)
        floor = float(pilot[beyond]) if beyond >= 0 else -np.inf
        tail = _pairs_above(rows, columns, floor, within)
        if len(tail.cosines) >= wanted or floor == -np.inf:
            return tail
        times *= 4


def _pairs_above(rows: np.ndarray, columns: np.ndarray, floor: float, within: bool) -> Tail:
    """Return the pairs with a cosine of at least `floor`, highest first; if too many, only the highest ones."""
    row_blocks, column_blocks = (list(blocks(len(side), _BLOCK)) for side in (rows, columns))
    tiles = [(a, b) for a in row_blocks for b in column_blocks if not within or b.start >= a.start]

    def find(tile: tuple[slice, slice]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b = tile
        cosines = rows[a] @ columns[b].T
        above = cosines >= floor
        if within and a.start == b.start:
            above &= np.triu(np.ones(above.shape, bool), 1)
        i, j = np.nonzero(above)
        return cosines[i, j], i + a.start, j + b.start

    parts: list[tuple[np.ndarray, ...]] = []
    size = 0
    for part in map_in_threads(find, tiles, len(tiles)):
        parts.append(part)
        size += len(part[0])
        if size > 2 * _MOST_KEPT:
            parts = [_highest(parts, _MOST_KEPT)]
            size = _MOST_KEPT
    cosines, first, second = _highest(parts, size)
    return Tail(np.minimum(cosines.astype(np.float64), 1.0), first, second, (len(rows), len(columns)), within)


def _highest(parts: list[tuple[np.ndarray, ...]], size: int) -> tuple[np.ndarray, ...]:
    joined = [np.concatenate(each) for each in zip(*parts, strict=True)]
    order = np.argsort(-joined[0], kind="stable")[:size]
    return tuple(each[order] for each in joined)


@dataclass(frozen=True)
class TailCut:
    """The threshold for a false-match rate."""

    cut: float | None
    """None if more pairs than requested share the highest cosine, such as copies with a cosine of 1."""
    low: float | None
    high: float | None
    rate: Share | None
    """The share of pairs above the threshold, counted on the sample; None if the threshold is extrapolated."""
    count: int
    """The number of pairs of the sample above the threshold; without one, that of the pairs with the highest cosine."""
    pairs: int
    """The number of pairs of the sample."""
    passed: int | None = None
    """If extrapolated: the number of tests that passed."""
    factor: float | None = None
    """If extrapolated: the factor within which the rate was predicted in 90% of the tests."""
    curve: tuple[np.ndarray, np.ndarray] = field(default=(np.empty(0), np.empty(0)), repr=False)
    """Cosines, and the share of pairs with at least this cosine."""


def needed_rows(rate: float, queries: int | None = None) -> float:
    """Return the number of rows with enough pairs, of two rows or of a query and a row, to count a rate.

    >>> needed_rows(1e-4), needed_rows(1e-4, 500)
    (1001, 1000)
    """
    number = MIN_COUNT / rate / queries if queries else (1 + math.sqrt(1 + 8 * MIN_COUNT / rate)) / 2
    return math.ceil(number) if math.isfinite(number) else math.inf


def is_within_reach(rate: float, sizes: tuple[int, int], within: bool) -> bool:
    """Return whether sources of these sizes have enough pairs to count a rate, or at least to extrapolate to it."""
    return _MOST_BEYOND * rate * count_pairs(sizes, within) >= MIN_COUNT


def limit_pairs(
    rows: np.ndarray, others: np.ndarray | None, rate: float, seed: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the rows, or a random part of them if the pairs above the threshold would not fit into memory."""
    sizes = len(rows), len(rows if others is None else others)
    expected = rate * count_pairs(sizes, others is None)
    if expected <= _MOST_KEPT / 2:
        return rows, others
    rng, share = np.random.default_rng(seed), math.sqrt(_MOST_KEPT / 2 / expected)
    parts = [
        side if side is None else side[np.sort(rng.permutation(len(side))[: math.ceil(share * len(side))])]
        for side in (rows, others)
    ]
    assert parts[0] is not None
    return parts[0], parts[1]


def find_tail_cut(rows: np.ndarray, others: np.ndarray | None, rate: float, confidence: float, seed: int) -> TailCut:
    """Return the cosine that this share of random pairs reaches; rows are unit vectors.

    Raises a `TooFewRowsError` if the rate can neither be counted nor be extrapolated.
    """
    sizes = len(rows), len(rows if others is None else others)
    pairs = count_pairs(sizes, others is None)
    expected = rate * pairs
    if expected >= MIN_COUNT:
        tail = collect_tail(rows, others, min(_KEPT * rate, 1.0), seed)
        return _count_cut(tail, rate, confidence)
    beyond = MIN_COUNT / expected
    share = min(3 * _EXCEEDANCES * max(beyond, 1.0) / pairs, 1.0)
    part = tuple(math.ceil(size / math.sqrt(beyond)) for size in sizes)
    if beyond > _MOST_BEYOND or min(part) < _LEAST_ROWS or count_pairs((part[0], part[1]), others is None) < 2_000:
        raise TooFewRowsError(_refusal(rate, pairs, sizes, others is None, "the rate is too low to extrapolate"))
    return _extrapolate_cut(collect_tail(rows, others, share, seed), rate, beyond, (part[0], part[1]), seed)


def _refusal(rate: float, pairs: int, sizes: tuple[int, int], within: bool, reason: str) -> str:
    rows = needed_rows(rate, None if within else sizes[0])
    least = _round_up(MIN_COUNT / pairs)
    needs = []
    if rows <= _MOST_NEEDED:
        needs.append(f"about {rows:,} rows" + ("" if within else f" for {sizes[0]:,} queries"))
    if least <= HIGHEST_RATE:
        needs.append(f"a rate of at least {least:g}")
    if not needs:
        needs.append(f"a higher rate and more rows, such as {needed_rows(1e-4):,} rows for a rate of 0.0001")
    return (
        f"{'1 pair is' if pairs == 1 else f'{pairs:,} pairs are'} too few to count a false-match rate of {rate:g}, and "
        f"{reason}: need {', or '.join(needs)}"
    )


def _round_up(rate: float) -> float:
    """Return a rate rounded up to one significant digit.

    >>> _round_up(3.2e-6), _round_up(1e-4)
    (4e-06, 0.0001)
    """
    unit = math.floor(math.log10(rate))
    return float(f"{math.ceil(rate / 10.0**unit - 1e-9)}e{unit}")


def _count_cut(tail: Tail, rate: float, confidence: float) -> TailCut:
    cosines, pairs = tail.cosines, tail.pairs
    count = int(rate * pairs + 1e-9)
    is_copy = count > 0 and cosines[count - 1] > NEARLY_ONE
    next_cosine = cosines[min(count, len(cosines) - 1)]
    while 0 < count < len(cosines) and cosines[count - 1] - next_cosine <= _ROUNDING:  # equal cosines stay together
        count -= 1
    curve = _make_curve(tail)
    if count == 0 or is_copy:
        highest = int(np.searchsorted(-cosines, _ROUNDING - float(cosines[0]), side="right"))
        return TailCut(None, None, None, tail.rate(highest, confidence), highest, pairs, curve=curve)
    next_cosine = cosines[count] if count < len(cosines) else cosines[count - 1]
    cut = float(cosines[count - 1] + next_cosine) / 2
    low, high = _cut_interval(tail, rate, confidence)
    return TailCut(cut, min(low, cut), max(high, cut), tail.rate(count, confidence), count, pairs, curve=curve)


def _cut_interval(tail: Tail, rate: float, confidence: float) -> tuple[float, float]:
    """Return the cosines between which the threshold lies: those at which the rate does not differ significantly."""
    expected = min(max(int(rate * tail.pairs), 1), len(tail.cosines))
    low = _first(expected, len(tail.cosines), lambda count: tail.rate(count, confidence).low > rate)
    high = _first(expected, 1, lambda count: tail.rate(count, confidence).high < rate)
    return float(tail.cosines[low - 1]), float(tail.cosines[high - 1])


def _first(start: int, end: int, differs: Callable[[int], bool]) -> int:
    """Return the first count on the way from `start` to `end` that differs significantly, or `end`, by bisection."""
    near, far = start, end
    while abs(far - near) > 1:
        middle = (near + far) // 2
        near, far = (near, middle) if differs(middle) else (middle, far)
    return far


def _make_curve(tail: Tail) -> tuple[np.ndarray, np.ndarray]:
    counts = np.unique(np.geomspace(1, len(tail.cosines), _CURVE_POINTS).astype(np.int64))
    return tail.cosines[counts - 1], counts / tail.pairs


def _extrapolate_cut(tail: Tail, rate: float, beyond: float, part: tuple[int, int], seed: int) -> TailCut:
    """Return the threshold from a generalized Pareto tail, if the same extrapolation succeeds on parts of the rows.

    Each test fits the tail to the pairs of a random part of the rows. The tested rate is as far below the lowest
    countable rate of the part as the requested rate is below that of all rows. The part is so small that all pairs
    suffice to count the tested rate exactly.
    """
    pairs = tail.pairs
    rng = np.random.default_rng(seed)
    factors = []
    for _ in range(TESTS):
        masks = []
        for size, chosen in zip(tail.sizes, part, strict=True):
            mask = np.zeros(size, bool)
            mask[rng.permutation(size)[:chosen]] = True
            masks.append(mask)
        smaller = tail.of((masks[0], masks[0] if tail.within else masks[1]))
        tested = rate * pairs / smaller.pairs
        cut = _predict(smaller.cosines, tested * smaller.pairs)
        count = 0 if cut is None else int(np.searchsorted(-tail.cosines, -cut, side="right"))
        ratio = count / (tested * pairs)
        factors.append(max(ratio, 1 / ratio) if ratio > 0 else math.inf)
    passed = sum(factor <= TOLERANCE for factor in factors)
    expected = rate * pairs
    cut = _predict(tail.cosines, expected)
    if passed < MIN_PASSED * TESTS or cut is None or cut > NEARLY_ONE:
        reason = (
            f"an extrapolation from parts of the rows predicted the rate within a factor of {TOLERANCE:g} in only "
            f"{passed} of {TESTS} tests"
            if passed < MIN_PASSED * TESTS
            else "the extrapolated threshold exceeds a cosine of 1"
        )
        raise TooFewRowsError(_refusal(rate, pairs, tail.sizes, tail.within, reason))
    factor = float(np.quantile(factors, MIN_PASSED, method="higher"))
    low, high = _predict(tail.cosines, expected * factor), _predict(tail.cosines, expected / factor)
    above = int(np.searchsorted(-tail.cosines, -cut, side="right"))
    return TailCut(
        cut, low, None if high is None else min(high, 1.0), None, above, pairs, passed, factor, _make_curve(tail)
    )


def _predict(cosines: np.ndarray, count: float) -> float | None:
    """Return the cosine that `count` pairs exceed, from a generalized Pareto tail; cosines are in descending order.

    The parameters are those of Hosking and Wallis (1987), from probability-weighted moments.
    """
    if len(cosines) <= _EXCEEDANCES:
        return None
    threshold = cosines[_EXCEEDANCES]
    excess = cosines[:_EXCEEDANCES][::-1] - threshold
    shares = 1 - (np.arange(1, _EXCEEDANCES + 1) - 0.35) / _EXCEEDANCES
    mean, weighted = float(excess.mean()), float((excess * shares).mean())
    if not mean > 2 * weighted > 0:
        return None
    shape, scale = 2 - mean / (mean - 2 * weighted), 2 * mean * weighted / (mean - 2 * weighted)
    times = _EXCEEDANCES / count
    beyond = math.log(times) if abs(shape) < 1e-6 else (times**shape - 1) / shape
    return float(threshold + scale * beyond)
