"""Measure the errors of IsoScore estimators on samples from distributions with a known IsoScore."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._io.files import atomic_replace
from isoscope.metrics.spectra import isoscore_interval
from isoscope.sketching.sketch import Sketch
from isoscope.studies.formatting import format_number, format_range
from isoscope.studies.study import Arm, Case, Figure, Panel, Row, Series, Table, Value
from isoscope.studies.verdicts import BELOW_ZERO, Evidence, difference_interval, share_of

if TYPE_CHECKING:
    from isoscope.studies.study import ArmContext, Bounds, Results, Setting


Sampler = Callable[[np.random.Generator, int], np.ndarray]
"""A function that draws n rows from a distribution."""


def isotropic(d: int) -> tuple[Sampler, np.ndarray]:
    """Return the sampler and the covariance of a standard normal distribution."""
    return lambda rng, n: rng.standard_normal((n, d)), np.eye(d)


def power_law(d: int) -> tuple[Sampler, np.ndarray]:
    """Return the sampler and the covariance of a normal distribution with variances 1/i and a mean far from 0."""
    variances = 1 / np.arange(1, d + 1)
    return lambda rng, n: rng.standard_normal((n, d)) * np.sqrt(variances) + 5, np.diag(variances)


def clustered(d: int) -> tuple[Sampler, np.ndarray]:
    """Return the sampler and the covariance of eight spherical clusters, four times as far apart as they are wide."""
    centers = np.random.default_rng(0).standard_normal((8, d)) * 4 / np.sqrt(d) * np.sqrt(8)
    off = centers - centers.mean(axis=0)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(centers[rng.integers(0, 8, n)] + rng.standard_normal((n, d)))

    return draw, np.eye(d) + off.T @ off / 8


def heavy_tailed(d: int) -> tuple[Sampler, np.ndarray]:
    """Return the sampler and the covariance of Student's t with 6 degrees of freedom and scales i^−½."""
    scales = np.arange(1, d + 1) ** -0.5

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(rng.standard_normal((n, d)) * np.sqrt(scales) / np.sqrt(rng.chisquare(6, (n, 1)) / 6))

    return draw, np.diag(scales) * 6 / 4


DISTRIBUTIONS = {"isotropic": isotropic, "power law": power_law, "clustered": clustered, "heavy tails": heavy_tailed}
"""Functions that return the sampler and the covariance of each distribution, given the number of dimensions."""


def true_isoscore(covariance: np.ndarray) -> float:
    """Return the IsoScore of a covariance matrix.

    >>> true_isoscore(np.eye(8))
    1.0
    """
    ratio = np.trace(covariance) ** 2 / np.vdot(covariance, covariance)
    return float((ratio - 1) / (len(covariance) - 1))


TRAINING_ZETA, ANALYSIS_ZETA = 0.2, 0.75
"""The values of ζ in the authors' regularizer and in their analysis."""
_CHUNK_ROWS = 8192
_MAX_BATCH_ROWS = 64
"""The largest sample that counts as a mini-batch."""
_LARGE_ERROR_SHARE = 0.25
"""The error, as a share of the true value, above which a score counts as far from the truth."""


def estimator_arms(setting: Setting) -> list[Arm]:
    """Return an arm for each distribution and sample size."""
    return [_make_arm(name, n, setting) for n in setting["sizes"] for name in setting["clouds"]]


def _make_arm(name: str, n: int, setting: Setting) -> Arm:
    d, draws = setting["dimensions"], setting["draws"]
    zetas = sorted({0.0, TRAINING_ZETA, ANALYSIS_ZETA, 1.0, *setting["zetas"]})

    def run(bench: ArmContext) -> dict[str, Any]:
        return measure_estimators(name, n, d, draws, zetas, setting["reference"], bench)

    return Arm(_arm_key(name, n), f"{name}, {n} rows", run, cost=0.5 + draws * n * d * d * 1e-9)


def _arm_key(name: str, n: int) -> str:
    return f"estimators/{name}/n-{n}"


def measure_estimators(
    name: str, n: int, d: int, draws: int, zetas: Sequence[float], reference: int, bench: ArmContext
) -> dict[str, Any]:
    """Return IsoScore estimates for many samples of n rows, and their errors.

    As the authors do, the shrinkage covariance is estimated from a large sample of the same distribution.
    """
    draw, covariance = DISTRIBUTIONS[name](d)
    truth = true_isoscore(covariance)
    shrinkage = _reference_covariance(name, draw, d, reference, bench)
    rng = np.random.default_rng([n, d, *name.encode()])
    stars: list[list[float]] = []
    errors: dict[str, list[float]] = {"plug-in": [], "unbiased": []}
    inside, apart = 0, 0.0
    for made in range(draws):
        X = draw(rng, n)
        seen = Sketch.of(X)
        plain = seen.isoscore()
        unbiased = isoscore_interval(X)
        value, low, high = (float(each) for each in unbiased)
        stars.append([seen.isoscore_star(shrinkage, zeta) for zeta in zetas])
        errors["plug-in"].append(plain - truth)
        errors["unbiased"].append(value - truth)
        inside += low <= truth <= high
        apart = max(apart, abs(stars[-1][0] - plain))
        bench.tell((made + 1) / draws, f"{made + 1} of {draws} samples")
    for zeta in (TRAINING_ZETA, ANALYSIS_ZETA):
        errors[_format_star(zeta)] = [each[zetas.index(zeta)] - truth for each in stars]
    columns = list(zip(*stars, strict=True))
    return {
        "truth": truth,
        "reference": seen.isoscore_star(shrinkage, 1.0),
        "zetas": list(zetas),
        "star": [fmean(each) for each in columns],
        "star_std": [stdev(each) for each in columns],
        "errors": errors,
        "inside": inside / draws,
        "apart": apart,
    }


def _format_star(zeta: float) -> str:
    return f"IsoScore*, ζ {zeta:g}"


_ESTIMATORS = ("plug-in", _format_star(TRAINING_ZETA), _format_star(ANALYSIS_ZETA), "unbiased")


def _reference_covariance(name: str, draw: Sampler, d: int, rows: int, bench: ArmContext) -> np.ndarray:
    """Return the covariance of a large sample, computed once for all sample sizes."""
    path = bench.shared / f"covariance-{name.replace(' ', '-')}-{d}-{rows}.npy"
    if path.exists():
        return np.asarray(np.load(path))
    rng = np.random.default_rng([rows, d, *name.encode(), 1])
    total = Sketch()
    for start in range(0, rows, _CHUNK_ROWS):
        total += Sketch.of(draw(rng, min(_CHUNK_ROWS, rows - start)))
        bench.tell(0.0, f"covariance of {total.n:,} of {rows:,} rows")
    with atomic_replace(path) as temporary, open(temporary, "wb") as file:
        np.save(file, total.covariance())
    return np.asarray(np.load(path))


# tables and figures

_EstimatorResults = dict[str, dict[int, Mapping[str, Any]]]


def _collect_results(setting: Setting, results: Results) -> _EstimatorResults:
    """Return the results of the finished arms, by distribution and number of rows."""
    collected: _EstimatorResults = {}
    for name in setting["clouds"]:
        sizes: dict[int, Mapping[str, Any]] = {
            n: results[_arm_key(name, n)] for n in sorted(setting["sizes"]) if _arm_key(name, n) in results
        }
        if sizes:
            collected[name] = sizes
    return collected


def _iterate_results(found: _EstimatorResults) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    return ((name, n, one) for name, sizes in found.items() for n, one in sizes.items())


def _rmse(errors: Sequence[float]) -> float:
    return math.sqrt(fmean(each * each for each in errors))


def estimator_tables(setting: Setting, results: Results) -> list[Table]:
    """Return tables of the bias and the root-mean-square error of the estimators."""
    found = _collect_results(setting, results)
    if not found:
        return []
    bias, rmse = [], []
    for name, n, one in _iterate_results(found):
        row = f"{name}, {n} rows"
        truth = {"truth": Value.of(one["truth"])}
        bias.append(Row(row, truth | {each: Value.of(one["errors"][each]) for each in _ESTIMATORS}))
        inside = {"in 95% interval": Value.of(one["inside"])}
        rmse.append(Row(row, truth | {each: Value.of(_rmse(one["errors"][each])) for each in _ESTIMATORS} | inside))
    where = (
        f"The distributions have {setting['dimensions']} dimensions, and each row is based on {setting['draws']} "
        "samples"
    )
    shrunk = (
        f"The shrinkage covariance of IsoScore* is computed from {setting['reference']:,} rows of the same distribution"
    )
    return [
        Table(
            "bias",
            "Bias of the estimators of IsoScore",
            ("truth", *_ESTIMATORS),
            bias,
            note=f"{where}; ± is the standard deviation over the samples. {shrunk}.",
            digits=4,
            row_name="distribution",
        ),
        Table(
            "rmse",
            "Root mean square error of the estimators of IsoScore",
            ("truth", *_ESTIMATORS, "in 95% interval"),
            rmse,
            note=f"{where}. The last column is the share of the unbiased estimate's intervals that contain the truth.",
            digits=4,
            row_name="distribution",
        ),
    ]


def estimator_figures(setting: Setting, results: Results) -> list[Figure]:
    """Return figure 4 and a figure of the error against the number of rows."""
    found = _collect_results(setting, results)
    if not found:
        return []
    shrinking = [Panel(name, _shrinkage_series(sizes), "ζ", "IsoScore*", zero=True) for name, sizes in found.items()]
    falling = [
        Panel(
            name,
            [Series(each, list(sizes), [_rmse(one["errors"][each]) for one in sizes.values()]) for each in _ESTIMATORS],
            "rows",
            "root mean square error",
            log_x=True,
            log_y=True,
        )
        for name, sizes in found.items()
    ]
    return [
        Figure(
            "4",
            "IsoScore* against the shrinkage ζ",
            "Lines are means over samples, one line for each sample size; bands show one standard deviation. The "
            "dashed line is the truth. At ζ = 0, IsoScore* equals IsoScore; at ζ = 1, it equals the IsoScore of the "
            "large sample.",
            shrinking,
            where="Figure 4",
        ),
        Figure(
            "estimators",
            "Error against the number of rows",
            "The figure compares IsoScore, IsoScore* with the covariance of the large sample, and the unbiased "
            "estimate, which needs no other sample.",
            falling,
        ),
    ]


def _shrinkage_series(sizes: Mapping[int, Mapping[str, Any]]) -> list[Series]:
    found = []
    for n, one in sizes.items():
        low = [mean - std for mean, std in zip(one["star"], one["star_std"], strict=True)]
        high = [mean + std for mean, std in zip(one["star"], one["star_std"], strict=True)]
        found.append(Series(f"{n:,} rows", one["zetas"], one["star"], low, high))
    one = next(iter(sizes.values()))
    return [*found, Series("truth", [0.0, 1.0], [one["truth"]] * 2, dashed=True)]


# verdicts

_FIGURE_ONLY = "shown only in a figure"


def estimator_evidence(setting: Setting, results: Results) -> dict[str, Callable[[], Evidence]]:
    """Return the evidence on the claims of Figure 4, by claim key."""
    found = _collect_results(setting, results)
    return {
        "unstable": lambda: _unstable_evidence(found),
        "stable": lambda: _stable_evidence(found, setting["dimensions"]),
        "no-shrinkage": lambda: _no_shrinkage_evidence(found),
        "many-samples": lambda: _many_samples_evidence(found),
    }


def _unstable_evidence(found: _EstimatorResults) -> Evidence:
    small = [each for each in _iterate_results(found) if each[1] <= _MAX_BATCH_ROWS]
    cases = [
        Case.over_seeds(
            f"{name}, {n} rows, |bias| over the truth",
            _relative_error(one["errors"]["plug-in"], one["truth"]),
            (_LARGE_ERROR_SHARE, math.inf),
        )
        for name, n, one in small
    ]
    why = (
        f"There is one case for each distribution and each sample size of up to {_MAX_BATCH_ROWS} rows: the absolute "
        f"bias of IsoScore must exceed {_LARGE_ERROR_SHARE:.0%} of the truth."
    )
    biases = [100 * fmean(one["errors"]["plug-in"]) / one["truth"] for _, _, one in small]
    ours = f"the bias is {format_range(biases, 0).replace(' to ', '% to ')}% of the truth" if biases else ""
    return Evidence(_FIGURE_ONLY, cases, why, ours)


def _relative_error(errors: Sequence[float], truth: float) -> Value:
    """Return the errors as shares of the true value, with signs flipped if the mean error is negative."""
    sign = -1.0 if fmean(errors) < 0 else 1.0
    return Value.of(sign * each / truth for each in errors)


def _stable_evidence(found: _EstimatorResults, d: int) -> Evidence:
    few = [(f"{name}, {n} rows", one["errors"]) for name, n, one in _iterate_results(found) if n <= d]
    why = (
        "There is one case for each distribution and each sample size up to the number of dimensions: IsoScore* at ζ "
        "= 0.2 must have a smaller squared error than IsoScore."
    )
    if not few:
        return Evidence(_FIGURE_ONLY, why=why)
    cases = [
        Case.over_seeds(
            words,
            Value.of(a * a - b * b for a, b in zip(one[_format_star(TRAINING_ZETA)], one["plug-in"], strict=True)),
            BELOW_ZERO,
        )
        for words, one in few
    ]
    plain, trained, analyzed, unbiased = ([_rmse(one[each]) for _, one in few] for each in _ESTIMATORS)
    left = [
        f"{100 * fmean(a / b for a, b in zip(each, plain, strict=True)):.0f}%" for each in (trained, analyzed, unbiased)
    ]
    ours = (
        f"smaller error in {share_of(cases, 'cases')}; of IsoScore's error, {left[0]} remains at ζ = 0.2, {left[1]} at "
        f"ζ = 0.75, and {left[2]} with the unbiased estimate"
    )
    least = sum(a < b for a, b in zip(unbiased, trained, strict=True))
    why += (
        " IsoScore* uses a large sample of the same distribution. The unbiased estimate needs no such sample and "
        f"has a smaller error than IsoScore* in {least} of {len(few)} cases."
    )
    return Evidence(_FIGURE_ONLY, cases, why, ours)


def _no_shrinkage_evidence(found: _EstimatorResults) -> Evidence:
    apart = max((one["apart"] for _, _, one in _iterate_results(found)), default=math.nan)
    cases = [Case.exact("largest difference", apart, (-math.inf, 1e-9))] if found else []
    why = "The case is the largest difference over all samples, which must not exceed rounding error."
    return Evidence(_FIGURE_ONLY, cases, why, f"they differ by at most {apart:.0e}")


def _many_samples_evidence(found: _EstimatorResults) -> Evidence:
    cases, gaps = [], []
    for name, sizes in found.items():
        if len(sizes) < 2:
            continue
        gap = [
            Value.of(
                a - b for a, b in zip(one["errors"][_format_star(TRAINING_ZETA)], one["errors"]["plug-in"], strict=True)
            )
            for one in sizes.values()
        ]
        (near, near_ends), (far, far_ends) = ((abs(each.mean), _absolute_interval(each)) for each in (gap[-1], gap[-2]))
        interval = difference_interval((near, near_ends), (far, far_ends))
        cases.append(Case(f"{name}, gap of the largest sample minus the second", near - far, interval, BELOW_ZERO))
        gaps.append([abs(each.mean) for each in gap])
    why = (
        "There is one case for each distribution: the gap between IsoScore* at ζ = 0.2 and IsoScore must be smaller "
        "for the largest sample size than for the second largest."
    )
    if not gaps:
        return Evidence("stated", why=why)
    first, last = (format_number(each, 4) for each in (max(map(max, gaps)), max(each[-1] for each in gaps)))
    ours = f"the gap narrows at the largest sample size in {share_of(cases, 'distributions')}, from {first} to {last}"
    if any(each[0] < max(each) for each in gaps):
        why += " With fewer rows than dimensions, both are near 0, so the gap widens at first."
    return Evidence("stated", cases, why, ours)


def _absolute_interval(value: Value) -> Bounds:
    """Return the interval of the absolute mean: signs are flipped if the mean is negative."""
    low, high = value.interval
    return (low, high) if value.mean >= 0 else (-high, -low)
