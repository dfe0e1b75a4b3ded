"""Estimators of IsoScore on data sets with a known answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace
from isoscope.metrics.spectra import isoscore_interval
from isoscope.sketching.sketch import Sketch
from isoscope.studies.study import Arm, Case, Figure, Panel, Row, Series, Table, Value
from isoscope.studies.verdicts import BELOW_ZERO, count_cases, difference_interval, make_verdict
from isoscope.studies.words import format_number

if TYPE_CHECKING:
    from isoscope.studies.study import ArmContext, Bounds, Published, Results, Setting, Verdict


Sampler = Callable[[np.random.Generator, int], np.ndarray]
"""Gives so many rows of a cloud."""


def isotropic(d: int) -> tuple[Sampler, np.ndarray]:
    """A ball: how its rows are drawn, and its covariance."""
    return lambda rng, n: rng.standard_normal((n, d)), np.eye(d)


def power_law(d: int) -> tuple[Sampler, np.ndarray]:
    """Variances that fall like 1/i, and a mean far from the origin."""
    variances = 1 / np.arange(1, d + 1)
    return lambda rng, n: rng.standard_normal((n, d)) * np.sqrt(variances) + 5, np.diag(variances)


def clustered(d: int) -> tuple[Sampler, np.ndarray]:
    """Eight round clusters of equal weight, whose centres are four times as far apart as they are wide."""
    centres = np.random.default_rng(0).standard_normal((8, d)) * 4 / np.sqrt(d) * np.sqrt(8)
    off = centres - centres.mean(axis=0)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(centres[rng.integers(0, 8, n)] + rng.standard_normal((n, d)))

    return draw, np.eye(d) + off.T @ off / 8


def heavy_tailed(d: int) -> tuple[Sampler, np.ndarray]:
    """Student's t with 6 degrees of freedom over variances that fall like i^−½."""
    scales = np.arange(1, d + 1) ** -0.5

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(rng.standard_normal((n, d)) * np.sqrt(scales) / np.sqrt(rng.chisquare(6, (n, 1)) / 6))

    return draw, np.diag(scales) * 6 / 4


DISTRIBUTIONS = {"isotropic": isotropic, "power law": power_law, "clustered": clustered, "heavy tails": heavy_tailed}
"""By name: for a number of dimensions, how rows are drawn, and the covariance."""


def true_isoscore(covariance: np.ndarray) -> float:
    """The IsoScore of a covariance.

    >>> true_isoscore(np.eye(8))
    1.0
    """
    ratio = np.trace(covariance) ** 2 / np.vdot(covariance, covariance)
    return float((ratio - 1) / (len(covariance) - 1))


TRAINING_ZETA, ANALYSIS_ZETA = 0.2, 0.75
"""ζ of the authors' regulariser, and of their analysis."""
_ROWS_AT_ONCE = 8192
_MAX_BATCH_ROWS = 64
"""Rows up to which a sample counts as a mini-batch."""
_LARGE_ERROR_SHARE = 0.25
"""The share of the truth by which a score that is far from it is off."""


def estimator_arms(setting: Setting) -> list[Arm]:
    """An arm for each cloud and size of sample."""
    unknown = [name for name in setting["clouds"] if name not in DISTRIBUTIONS]
    if unknown:
        raise InputError(f"no cloud is named {unknown[0]}: need {', '.join(DISTRIBUTIONS)}")
    for name, least in (("dimensions", 2), ("draws", 2), ("reference", 2)):
        if setting[name] < least:
            raise InputError(f"{name} is {setting[name]}: need {least} at least")
    wrong = [each for each in setting["sizes"] if each < 5]
    if wrong:
        raise InputError(f"a sample has {wrong[0]} rows: need 5 at least, for the unbiased estimate with its interval")
    outside = [each for each in setting["zetas"] if not 0 <= each <= 1]
    if outside:
        raise InputError(f"zetas has {outside[0]}: need shares between 0 and 1")
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
    """Scores of many samples of n rows, and how far each estimate is from the truth.

    The shrinkage covariance is, as the authors', that of a large sample of the same space.
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
    """The covariance of a large sample, made once for all sizes."""
    path = bench.shared / f"covariance-{name.replace(' ', '-')}-{d}-{rows}.npy"
    if path.exists():
        return np.asarray(np.load(path))
    rng = np.random.default_rng([rows, d, *name.encode(), 1])
    total = Sketch()
    for start in range(0, rows, _ROWS_AT_ONCE):
        total += Sketch.of(draw(rng, min(_ROWS_AT_ONCE, rows - start)))
        bench.tell(0.0, f"covariance of {total.n:,} of {rows:,} rows")
    with atomic_replace(path) as temporary, open(temporary, "wb") as file:
        np.save(file, total.covariance())
    return np.asarray(np.load(path))


# what becomes of it

_EstimatorResults = dict[str, dict[int, Mapping[str, Any]]]


def _collect_results(setting: Setting, results: Results) -> _EstimatorResults:
    """Results by cloud and number of rows, of those that are done."""
    there: _EstimatorResults = {}
    for name in setting["clouds"]:
        sizes: dict[int, Mapping[str, Any]] = {
            n: results[_arm_key(name, n)] for n in sorted(setting["sizes"]) if _arm_key(name, n) in results
        }
        if sizes:
            there[name] = sizes
    return there


def _iterate_results(found: _EstimatorResults) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    return ((name, n, one) for name, sizes in found.items() for n, one in sizes.items())


def _rmse(errors: Sequence[float]) -> float:
    return math.sqrt(fmean(each * each for each in errors))


def estimator_tables(setting: Setting, results: Results) -> list[Table]:
    """Bias and root mean square error of the estimators."""
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
    where = f"{setting['dimensions']} dimensions, {setting['draws']} samples for each line"
    shrunk = f"IsoScore* is pulled towards the covariance of {setting['reference']:,} rows of the same cloud"
    return [
        Table(
            "bias",
            "Bias of the estimators of IsoScore",
            ("truth", *_ESTIMATORS),
            bias,
            note=f"{where}; ± is the standard deviation over the samples. {shrunk}.",
            digits=4,
            row_name="cloud",
        ),
        Table(
            "rmse",
            "Root mean square error of the estimators of IsoScore",
            ("truth", *_ESTIMATORS, "in 95% interval"),
            rmse,
            note=f"{where}. The last column is the share of the unbiased estimate's intervals that hold the truth.",
            digits=4,
            row_name="cloud",
        ),
    ]


def estimator_figures(setting: Setting, results: Results) -> list[Figure]:
    """Figure 4, and the error against the number of rows."""
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
            "Means over samples of several sizes, with bands of one standard deviation; dashed is the truth. At ζ = 0 "
            "it is IsoScore, at ζ = 1 the score of the large sample, whatever the small one is.",
            shrinking,
            where="Figure 4",
        ),
        Figure(
            "estimators",
            "Error against the number of rows",
            "IsoScore, IsoScore* with the large sample's covariance, and the unbiased estimate, which needs no other "
            "sample.",
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


def estimator_verdicts(setting: Setting, results: Results, published: Published) -> list[Verdict]:
    """Return the verdicts on what Figure 4 claims."""
    found, d = _collect_results(setting, results), setting["dimensions"]
    tested = {
        "unstable": _unstable_evidence(found),
        "stable": _stable_evidence(found, d),
        "no-shrinkage": _no_shrinkage_evidence(found),
        "many-samples": _many_samples_evidence(found),
    }
    return [
        make_verdict(published.claim(key), "stated" if key == "many-samples" else _FIGURE_ONLY, cases, why, ours=ours)
        for key, (cases, why, ours) in tested.items()
    ]


_FIGURE_ONLY = "a figure without numbers"
_Evidence = tuple[list[Case], str, str]
"""The cases of a claim, what a case is, and our evidence in words."""


def _unstable_evidence(found: _EstimatorResults) -> _Evidence:
    cases = [
        Case.over_seeds(
            f"{name}, {n} rows, |bias| over the truth",
            _relative_error(one["errors"]["plug-in"], one["truth"]),
            (_LARGE_ERROR_SHARE, math.inf),
        )
        for name, n, one in _iterate_results(found)
        if n <= _MAX_BATCH_ROWS
    ]
    why = (
        f"A case is a cloud and a size of at most {_MAX_BATCH_ROWS} rows: IsoScore is off by more than "
        f"{_LARGE_ERROR_SHARE:.0%} of the truth."
    )
    off = [
        fmean(one["errors"]["plug-in"]) / one["truth"] for _, n, one in _iterate_results(found) if n <= _MAX_BATCH_ROWS
    ]
    ours = (
        f"off by {format_number(100 * min(off), 0)}% to {format_number(100 * max(off), 0)}% of the truth" if off else ""
    )
    return cases, why, ours


def _relative_error(errors: Sequence[float], truth: float) -> Value:
    """Return the mean error as a share of the truth, turned so that it is positive."""
    sign = -1.0 if fmean(errors) < 0 else 1.0
    return Value.of(sign * each / truth for each in errors)


def _stable_evidence(found: _EstimatorResults, d: int) -> _Evidence:
    few = [(f"{name}, {n} rows", one["errors"]) for name, n, one in _iterate_results(found) if n <= d]
    why = "A case is a cloud and a size of at most as many rows as dimensions: ζ 0.2 has the smaller squared error."
    if not few:
        return [], why, ""
    cases = [
        Case.over_seeds(
            words,
            Value.of(a * a - b * b for a, b in zip(one[_format_star(TRAINING_ZETA)], one["plug-in"], strict=True)),
            BELOW_ZERO,
        )
        for words, one in few
    ]
    plain, trained, analysed, unbiased = ([_rmse(one[each]) for _, one in few] for each in _ESTIMATORS)
    left = [
        f"{100 * fmean(a / b for a, b in zip(each, plain, strict=True)):.0f}% of IsoScore's error is left {words}"
        for each, words in ((trained, "at ζ 0.2"), (analysed, "at ζ 0.75"), (unbiased, "by the unbiased estimate"))
    ]
    ours = f"smaller error in {count_cases(cases)[0]} of {len(few)}; {', '.join(left)}"
    least = sum(a < b for a, b in zip(unbiased, trained, strict=True))
    why += (
        " It uses a large sample of the same space; the unbiased estimate uses none and has a smaller error than ζ 0.2 "
        f"in {least} of {len(few)}."
    )
    return cases, why, ours


def _no_shrinkage_evidence(found: _EstimatorResults) -> _Evidence:
    apart = max((one["apart"] for _, _, one in _iterate_results(found)), default=math.nan)
    cases = [Case.exact("largest difference", apart, (-math.inf, 1e-9))] if found else []
    return cases, "The case is the largest difference over all samples: rounding alone.", f"at most {apart:.0e} apart"


def _many_samples_evidence(found: _EstimatorResults) -> _Evidence:
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
    why = "A case is a cloud: the gap at ζ 0.2 is smaller in the largest sample than in the second largest."
    if not gaps:
        return [], why, ""
    ours = (
        f"the gap falls at the end in {count_cases(cases)[0]} of {len(gaps)} clouds, from "
        f"{format_number(max(map(max, gaps)), 4)} "
        f"to {format_number(max(each[-1] for each in gaps), 4)}"
    )
    if any(each[0] < max(each) for each in gaps):
        why += " With fewer rows than dimensions both are near 0, and the gap first widens."
    return cases, why, ours


def _absolute_interval(value: Value) -> Bounds:
    """Return the interval of a mean, turned with it so that the mean is positive."""
    low, high = value.interval
    return (low, high) if value.mean >= 0 else (-high, -low)
