"""The candidates of `compress`: dimensions, preprocessing and precision, smallest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import ParameterError
from isoscope._core.random import sklearn_seed
from isoscope.transforms.quantize import PRECISIONS, Quantizer
from isoscope.transforms.repair import is_count
from isoscope.transforms.rounding import CENTROIDS, build_rounding

if TYPE_CHECKING:
    from isoscope._core.types import Metric

AS_IS = "as it is"
"""The name of the candidate that leaves the vectors unchanged."""

LIST_LENGTH = 10
"""The number of results of a search."""
OVERSAMPLING = (4, 10)
"""The oversampling factors to try: the number of rescored results, divided by the number of results needed."""

_SHARES = (3 / 4, 1 / 2, 1 / 4, 1 / 8)  # of the dimensions


@dataclass(frozen=True)
class Candidate:
    """A way to store vectors that has not been fitted yet."""

    name: str
    quantizer: Quantizer | None
    """None leaves the vectors unchanged."""
    bytes: int
    """Bytes per vector in the index that is searched."""
    oversampling: int = 0
    """The number of results to rescore with the original vectors, divided by the number needed; 0: no rescoring."""
    stored: int = 0
    """Bytes per vector that rescoring needs in addition, usually on disk."""

    @property
    def depth(self) -> int:
        """The number of results to fetch for a list of ten."""
        return LIST_LENGTH * max(self.oversampling, 1)

    @property
    def frame(self) -> tuple[Any, ...]:
        """The parameters of the map before rounding; candidates with the same frame share projections."""
        of = self.quantizer
        return () if of is None else (of.reduction, of.n_components, of.preprocess)


def build_candidates(
    d: int,
    itemsize: int,
    metric: Metric,
    seed: int,
    *,
    rows: int,
    rescored: bool,
    precisions: Iterable[str] | None = None,
    dimensions: Iterable[int] | None = None,
) -> list[Candidate]:
    """Return the candidates for vectors of d dimensions, smallest first; the last one leaves the vectors unchanged.

    `rows` is the number of vectors to learn from: with too few for product quantization, it is tried only by name. A
    candidate whose codes are not smaller than the vectors is left out. With `rescored`, bits are also tried with
    rescoring.
    """
    wanted, widths = _check_precisions(precisions), _check_dimensions(dimensions, d)
    if precisions is None and rows < CENTROIDS:
        wanted.remove("pq")
    original = Candidate(AS_IS, None, d * itemsize)
    found: dict[str, Candidate] = {}
    for quantizer in _list_quantizers(d, wanted, widths, by_name=precisions is not None):
        if metric == "euclidean" and quantizer.preprocess == "whiten":
            continue  # databases would compare whitened vectors, whose distances differ
        quantizer.set_params(metric=metric, random_state=sklearn_seed(seed))
        size = build_rounding(
            quantizer.precision, quantizer.scale, quantizer.n_components or d, quantizer.n_subvectors, {}
        ).code_size
        if size >= original.bytes:
            continue
        candidate = Candidate(describe_quantizer(quantizer), quantizer, size)
        found[candidate.name] = candidate
        if rescored and quantizer.precision == "bit":
            for factor in OVERSAMPLING:
                name = f"{candidate.name}, rescored ×{factor}"
                found[name] = replace(candidate, name=name, oversampling=factor, stored=original.bytes)
    if not found:
        names = ", ".join(wanted)
        raise ParameterError(
            f"no candidate of {names} has codes smaller than the vectors of {d} dimensions, which take "
            f"{original.bytes} bytes each: choose lower precisions or fewer dimensions (pq needs a multiple of 4)"
        )
    return [*sorted(found.values(), key=lambda each: (each.bytes, each.oversampling)), original]


def _list_quantizers(d: int, precisions: Sequence[str], widths: Sequence[int], *, by_name: bool) -> Iterator[Quantizer]:
    """Yield a pruned product of dimensions, preprocessing and precision; simpler ones first."""
    integers = [each for each in ("int8", "int4") if each in precisions]
    few = [each for each in ("int4",) if each in precisions]
    bits = ["bit"] if "bit" in precisions else []
    for precision in ("float32", "float16"):
        if precision in precisions:
            yield Quantizer(precision)
    for precision in integers:
        for scale in ("coordinate", "vector", "shared"):
            yield Quantizer(precision, scale=scale)
        for preprocess in ("center", "rotate"):
            yield Quantizer(precision, scale="shared", preprocess=preprocess)
    for precision in few:
        yield Quantizer(precision, scale="vector", preprocess="center")
        yield Quantizer(precision, scale="coordinate", preprocess="rotate")
        yield Quantizer(precision, scale="vector", preprocess="rotate")
        yield Quantizer(precision, scale="coordinate", preprocess="whiten")
    for precision in bits:
        yield Quantizer(precision)
        for preprocess in ("center", "rotate", "whiten"):
            yield Quantizer(precision, preprocess=preprocess)
    if "pq" in precisions:
        yield from _list_product_quantizers(d, by_name=by_name)
    for k in widths:
        for precision in precisions:
            if precision in ("float16", "int8", "int4") or (precision == "float32" and by_name):
                yield Quantizer(precision, n_components=k)
            if precision in ("float16", "int8", "int4"):
                yield Quantizer(precision, n_components=k, reduction="pca")
            if precision == "int4":
                yield Quantizer(precision, scale="shared", n_components=k, reduction="pca", preprocess="rotate")
    for k in widths[1:2] if len(widths) > 1 else widths:
        for precision in bits:
            yield Quantizer(precision, n_components=k, reduction="pca", preprocess="rotate")


def _list_product_quantizers(d: int, *, by_name: bool) -> Iterator[Quantizer]:
    """Yield product quantizers with 4 and 8 dimensions per subvector; by name also after a rotation."""
    for size in (4, 8):
        if d % size == 0 and d > size:
            yield Quantizer("pq", n_subvectors=d // size)
            if by_name:
                yield Quantizer("pq", n_subvectors=d // size, preprocess="rotate")


def describe_quantizer(quantizer: Quantizer) -> str:
    """Return a short name for a quantizer: its precision, preprocessing and dimensions.

    >>> describe_quantizer(Quantizer("int4", scale="shared", preprocess="rotate", n_components=96, reduction="pca"))
    'int4 with one range, rotated, PCA 96'
    >>> describe_quantizer(Quantizer("bit")), describe_quantizer(Quantizer("int8", n_components=64))
    ('1 bit', 'int8 per coordinate, first 64')
    """
    scales = {"coordinate": " per coordinate", "vector": " per vector", "shared": " with one range"}
    words = {"bit": "1 bit", "pq": f"PQ {quantizer.n_subvectors}"}.get(quantizer.precision, quantizer.precision)
    if quantizer.precision in ("int8", "int4"):
        words += scales[quantizer.scale]
    if quantizer.preprocess is not None:
        words += {"center": ", centered", "rotate": ", rotated", "whiten": ", whitened"}[quantizer.preprocess]
    if quantizer.n_components is not None:
        words += f", {'PCA' if quantizer.reduction == 'pca' else 'first'} {quantizer.n_components}"
    return words


def _check_precisions(given: Iterable[str] | None) -> list[str]:
    if given is None:
        return list(PRECISIONS)
    names = list(given)
    for name in names:
        if name not in PRECISIONS:
            raise ParameterError(f"precision {name!r} is unknown: choose from {', '.join(PRECISIONS)}")
    if not names:
        raise ParameterError(f"precisions is empty: choose from {', '.join(PRECISIONS)}")
    return names


def _check_dimensions(given: Iterable[int] | None, d: int) -> list[int]:
    if given is None:
        return sorted({int(d * share) for share in _SHARES if d * share >= 2}, reverse=True)
    widths = list(given)
    for k in widths:
        if not is_count(k, 1):
            raise ParameterError(f"dimensions contains {k!r}: need positive integers")
        if k > d:
            raise ParameterError(f"dimensions contains {k} but the vectors have only {d} dimensions")
    return sorted({int(k) for k in widths if k < d}, reverse=True)
