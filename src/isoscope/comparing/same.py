"""The function `same`: whether two sets of vectors come from one space, and the test that decided."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.errors import InputError, ParameterError, TooFewRowsError, plural
from isoscope._core.missing import drop_policy
from isoscope._core.random import check_seed
from isoscope._io.progress import show_progress
from isoscope.advising.task import row_identity
from isoscope.auditing.measure import check_largest_norm
from isoscope.auditing.mixed_spaces import (
    MIN_MIXED_DIMENSIONS,
    MIN_MIXED_ROWS,
    MIXED_ROWS,
    assign_spaces,
    find_mixed_spaces,
)
from isoscope.comparing.paired import ENOUGH_PAIRS, are_codes, compare_pairs, rounding_error
from isoscope.comparing.sameness import Sameness, SameSettings
from isoscope.comparing.sides import (
    match_rows,
    open_side,
    read_pairs,
    read_sample,
    read_sketch,
    repeated_groups,
)
from isoscope.comparing.two_sample import (
    LEVEL,
    MIN_ROWS,
    TEST_ROWS,
    SpaceMoments,
    compare_moments,
    compare_rows,
)
from isoscope.engines.engine import open_engine
from isoscope.metrics.correspondence import cka, mutual_knn

if TYPE_CHECKING:
    from isoscope._core.types import Column, Missing, Seed, Zeros
    from isoscope._io.progress import Progress
    from isoscope.comparing.sides import (
        PairedRows,
        Pairing,
        RowMatch,
        Side,
    )
    from isoscope.comparing.two_sample import Comparison
    from isoscope.engines.engine import Engine
    from isoscope.sketching.sketch import Sketch
    from isoscope.stores.sampling import Sample

_ENOUGH_ROWS = 4 * MIN_ROWS  # on each side; estimates from few rows can be too low
_LISTED_IDS = 1_000
_NEIGHBOR_ROWS = 2_000  # matched rows whose neighbors are compared
_BROKEN, _BROKEN_SHARE = (
    20.0,
    0.01,
)  # a row this many times as far away as the median row, and the largest share of such
_DOMINATED = 0.02  # one of 1,000 rows reaches this if it is 13 times as far from the mean as the others
_CONTENT_NOTE = (
    "Unmatched rows cannot distinguish a changed model from changed content; vectors of the same texts can. To be "
    "sure, keep such vectors with isoscope canary."
)


def same(
    old: Any,
    new: Any = None,
    *,
    within: bool = False,
    pair: Pairing = "auto",
    tolerance: float = 0.05,
    vectors: str | None = None,
    ids: Column | None = None,
    new_ids: Column | None = None,
    text: str | None = None,
    groups: str | None = None,
    layer: int | None = None,
    sample: int = 20_000,
    seed: Seed = 0,
    missing: Missing = "error",
    zeros: Zeros = "keep",
    progress: bool | Progress | None = None,
    engine: Any = "local",
) -> Sameness:
    """Decide whether two sets of vectors come from the same space.

    Rows with the same id or text are matched and compared directly: the answer is "same", "rescaled", "shifted",
    "rotated" or "different". Unmatched rows are compared as two samples, so a rotation is reported as "different". If
    there are too few rows, the answer is "undecided".

    Parameters
    ----------
    old, new : path, array, DataFrame, Dataset, store or Sketch
        The vectors before and after a change: anything that `open_store` opens, a sketch or its file, or a canary file
        that `isoscope.canary` wrote.
    within : bool
        Whether to look for rows of another space inside `old`, such as an index that holds vectors of two models. Pass
        no `new` then. The answer is "same", "mixed" or "undecided", and `changed` lists the ids of at most 1,000 such
        rows in the sample.
    pair : {"auto", "ids", "text", "rows", "none"}
        How rows are matched: by id, by text, by row number, or not at all. By default, by id or by text if both sources
        have such a column and share values in it, otherwise by row number if both have equal rows.
    tolerance : float
        How far a vector may move and still count as the same, relative to the spread of the vectors: the
        median distance from their median. Rounding to 8 bits moves vectors by about 0.01.
    vectors, text, groups : str, optional
        The columns of both sources; see `open_store`. Rows of one group depend on each other, such as the passages of a
        document, and stay together in the tests.
    ids, new_ids : column name, or one value per row, optional
        The ids of the old and of the new rows. A column name in `ids` applies to both sources unless `new_ids` is
        passed.
    layer : int, optional
        The layer to read, if a source has hidden states of several.
    sample : int
        The largest number of matched rows to compare, or of rows to examine with `within`. Of unmatched rows, at most
        1,000 on each side are compared.
    seed : int, sequence of int, SeedSequence, Generator or None
        Random seed for samples and permutations.
    missing : {"error", "drop"}
        Raise an error for rows with a missing value, for repeated ids and for ids that only one side has; or leave them
        out and report how many.
    zeros : {"keep", "drop"}
        Keep rows of zeros, or leave them out.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt, for work of more than a second;
        or a function that is called with the stage, the number of rows read and the share of the work done (0 to 1).
    engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
        Where the rows are read.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((400, 16)) * np.arange(1, 17)
    >>> isoscope.same(X[:200], X[200:]).answer, isoscope.same(X[:200], X[200:, ::-1]).answer
    ('same', 'different')
    >>> isoscope.same(X, X[:, ::-1], pair="rows").answer
    'rotated'
    """
    settings = SameSettings(pair, tolerance, sample, check_seed(seed), missing, zeros, layer)
    if within == (new is not None):
        raise ParameterError("pass old and new, or one source with within=True (CLI: --within)")
    if within:
        unused = {"new_ids": new_ids is not None, "pair": pair != "auto", "tolerance": tolerance != 0.05}
        for name in [name for name, passed in {**unused, "groups": groups is not None}.items() if passed]:
            raise ParameterError(
                f"{name} was passed with within=True, which does not use it: leave it out (CLI: "
                f"{'--columns groups=' if name == 'groups' else '--' + name.replace('_', '-')} with --within)"
            )
    if new_ids is None and not within and not isinstance(ids, str | None):
        raise ParameterError("ids has one value per row of old: pass new_ids too (CLI: --new-ids)")
    columns: dict[str, Any] = {"vectors": vectors, "text": text, "groups": groups}
    both = [(old, "old", ids)] if within else [(old, "old", ids), (new, "new", ids if new_ids is None else new_ids)]
    sides = [
        open_side(source, what, layer=layer, missing=missing, zeros=zeros, columns={**columns, "ids": own})
        for source, what, own in both
    ]
    before, after = sides[0], sides[-1]
    result = Sameness(
        "different",
        "dimensions",
        before.name,
        "" if within else after.name,
        before.n,
        after.n,
        before.d,
        after.d,
        settings,
        notes=[note for side in sides for note in side.notes],
        given={role: name for role, name in (("ids", ids), ("new_ids", new_ids)) if isinstance(name, str)},
        version=isoscope.__version__,
    )
    if within:
        with show_progress(progress) as report, open_engine(engine) as running:
            _look_within(result, before, running, report)
        return result
    if before.d != after.d:
        result.decided_by = "dimensions"
        result.error_rate = 0.0
        return result
    with show_progress(progress) as report, open_engine(engine) as running:
        match = match_rows(before, after, pair, missing)
        if match is not None:
            _compare_matched(result, before, after, match, running, report)
        elif before.sketch is not None or after.sketch is not None:
            _compare_sketches(result, before, after, running, report)
        else:
            _compare_samples(result, before, after, running, report)
    return result


# one source


def _look_within(result: Sameness, side: Side, engine: Engine, progress: Progress) -> None:
    """Look for rows of another space, and list their ids, or their row numbers if there are no ids."""
    if side.store is None:
        raise ParameterError("within needs rows, but a sketch has none: pass the vectors themselves")
    settings = result.settings
    drop = drop_policy(settings.missing, settings.zeros)
    sample = read_sample(side, settings.sample, settings.seed, drop, engine, progress)
    progress("looking for a second space", 0, 0.0)
    examined = sample.first(MIXED_ROWS)
    found = find_mixed_spaces(sample.vectors[examined], settings.seed)
    result.evidence, result.compared, result.decided_by = (
        "within",
        len(sample),
        found.sign if found is not None and found.is_mixed else "mixed_spaces",
    )
    if found is None:
        result.answer = "undecided"
        if side.d < MIN_MIXED_DIMENSIONS:
            result.notes.append(
                f"Rows of another space are detected only in {MIN_MIXED_DIMENSIONS} or more dimensions."
            )
        else:
            result.enough = MIN_MIXED_ROWS
        return
    result.answer = "mixed" if found.is_mixed else "undecided" if found.is_undecided else "same"
    result.details = found.measurements
    if found.is_undecided:
        result.decided_by = "centered"
    if not found.is_mixed:
        return
    result.decided_by = found.sign
    kept = np.delete(examined, found.other)
    others = assign_spaces(sample.vectors, kept, examined[found.other], found.sign)
    rows = sample.rows[np.flatnonzero(others)]
    names = side.store.column("ids", rows[:_LISTED_IDS]) if "ids" in side.store.columns else None
    result.changed = (rows[:_LISTED_IDS] if names is None else names).tolist()
    result.n_changed = len(rows)
    if names is None:
        result.notes.append("The source has no ids, so rows are listed by number, counted from 0.")
    if len(sample) < side.n:
        result.notes.append(
            f"A random sample of {len(sample):,} of {side.n:,} rows was examined; other rows are not listed."
        )


# matched rows


def _compare_matched(
    result: Sameness, old: Side, new: Side, match: RowMatch, engine: Engine, progress: Progress
) -> None:
    settings = result.settings
    rows = read_pairs(old, new, match, settings.sample, settings.seed, engine, progress)
    result.evidence, result.compared = "pairs", len(rows.old)
    result.notes += rows.notes
    if len(rows.old) < 4:
        result.answer, result.enough = "undecided", ENOUGH_PAIRS
        return
    _check_rows(old, rows.old.astype(np.float64))
    _check_rows(new, rows.new.astype(np.float64))
    if _is_constant(result, rows.old, rows.new):
        return
    before, after = _decode(rows)
    rounding = max(rounding_error(rows.old), rounding_error(rows.new))
    found = compare_pairs(before, after, tolerance=settings.tolerance, seed=settings.seed, rounding=rounding)
    result.fits, result.cosines = list(found.fits), found.cosines
    result.changed = rows.names[found.changed[:_LISTED_IDS]].tolist()
    result.n_changed = len(found.changed)
    result.scale, result.shift, result.angle = found.scale, found.shift, found.angle
    result.details = {"tolerance": found.tolerance}
    if rounding:
        result.notes.append(
            f"One side holds integer codes, so a factor or a shift does not count as a change. Their rounding error is "
            f"{rounding:.1%} of the spread, and the tolerance is at least twice as large."
        )
    chosen = found.chosen
    if chosen is None:
        result.answer, result.decided_by = "different", "pairs"
        fewest = min(fit.needed for fit in found.fits)
        if result.compared < fewest:
            result.answer, result.enough = "undecided", fewest
        elif found.cosines[0] >= 1 - settings.tolerance**2 / 2:  # an angle of at most the tolerance, in radians
            result.answer, result.decided_by = "rescaled", "directions"
            ratios = _length_ratios(before, after)
            result.details |= {"length_ratio_1": float(ratios[0]), "length_ratio_99": float(ratios[1])}
    elif not chosen.is_decided:
        result.answer, result.decided_by, result.enough = "undecided", chosen.relation, chosen.needed
    else:
        result.answer = "same" if rounding and chosen.relation != "rotated" else chosen.relation
        result.decided_by = chosen.relation
    result.residual = (chosen or found.fits[0]).residual
    _measure_correspondence(result, before, after)


def _length_ratios(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the 1st and 99th percentile of the ratios of new to old lengths."""
    lengths = np.linalg.norm(old.astype(np.float64), axis=1)
    usable = lengths > 0
    ratios = np.linalg.norm(new[usable].astype(np.float64), axis=1) / lengths[usable]
    return np.asarray(np.quantile(ratios, [0.01, 0.99]))


def _decode(rows: PairedRows) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors; if one side holds signed codes, both are scaled to unit length.

    Codes without a sign have a shift, which is found like any other.
    """
    if any(are_codes(part) and part.min() < 0 for part in (rows.old, rows.new)):
        return _unit_length(rows.old), _unit_length(rows.new)
    return rows.old, rows.new


def _unit_length(vectors: np.ndarray) -> np.ndarray:
    real = vectors.astype(np.float64)
    lengths = np.linalg.norm(real, axis=1, keepdims=True)
    return np.asarray(real / np.where(lengths > 0, lengths, 1))


def _measure_correspondence(result: Sameness, old: np.ndarray, new: np.ndarray) -> None:
    """Measure the effect of a difference: CKA, and the share of nearest neighbors in common."""
    m = min(len(old), _NEIGHBOR_ROWS)
    if m < 12:
        return
    a, b = old[:m].astype(np.float32), new[:m].astype(np.float32)
    with suppress(InputError):  # one row may be so large that the others seem equal
        result.cka = float(cka(a, b))
    result.neighbors = float(mutual_knn(a, b, k=10))


# unmatched rows


def _compare_samples(result: Sameness, old: Side, new: Side, engine: Engine, progress: Progress) -> None:
    settings = result.settings
    drop = drop_policy(settings.missing, settings.zeros)
    size = min(TEST_ROWS, settings.sample)
    samples = [read_sample(side, size, settings.seed + i, drop, engine, progress) for i, side in enumerate((old, new))]
    samples = [_drop_broken(result, side, sample) for side, sample in zip((old, new), samples, strict=True)]
    rows = [sample.vectors.astype(np.float64) for sample in samples]
    groups = [repeated_groups(sample) for sample in samples]
    units = [len(part) if own is None else len(np.unique(own)) for part, own in zip(rows, groups, strict=True)]
    result.evidence, result.compared = "rows", min(map(len, rows))
    if min(units) < MIN_ROWS:
        result.answer, result.enough = "undecided", _ENOUGH_ROWS
        return
    _check_rows(old, rows[0])
    _check_rows(new, rows[1])
    if _is_constant(result, *rows):
        return
    identity = row_identity(np.concatenate(rows))
    shared = int(np.isin(identity[: len(rows[0])], identity[len(rows[0]) :]).sum())
    if shared:
        result.notes.append(
            f"{plural(shared, 'compared row')} of the old vectors {'is' if shared == 1 else 'are'} also among the new "
            "ones: to compare equal rows with each other, match them by id, text or row number (CLI: --pair)."
        )
    progress("permutation tests", 0, 0.0)

    def compare(a: np.ndarray, b: np.ndarray) -> Comparison:
        return compare_rows(a, b, old_groups=groups[0], new_groups=groups[1], seed=settings.seed)

    found = compare(*rows)
    _decide(result, found, min(units))
    result.auc, result.auc_low, result.auc_high = found.auc, found.auc_low, found.auc_high
    if any(own is not None for own in groups):
        result.notes.append(
            f"Dependent rows stay together in the tests; the smaller side has {plural(min(units), 'group')}."
        )
    if result.answer == "different":
        scale = _rms(rows[1]) / _rms(rows[0])
        means = [part.mean(axis=0) for part in rows]
        spread = _rms(rows[1] - means[1]) / _rms(rows[0] - means[0])
        if not compare(rows[0], rows[1] / scale).differs:
            result.answer, result.scale = "rescaled", scale
        elif not compare(rows[0] - means[0], (rows[1] - means[1]) / spread).differs:
            result.answer, result.scale = "shifted", spread
            result.shift = float(np.linalg.norm(means[1] - spread * means[0])) / _rms(rows[1] - means[1])


def _drop_broken(result: Sameness, side: Side, sample: Sample) -> Sample:
    """Return the sample without broken rows, which are far away from all others, and note which they are.

    If more than 1% of the rows are far away, they do not count as broken, and all rows are kept.
    """
    rows = sample.vectors.astype(np.float64)
    with np.errstate(over="ignore"):
        distances = np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    broken = distances > _BROKEN * np.median(distances)
    count = int(broken.sum())
    if not count or not np.median(distances) > 0 or count > max(1, _BROKEN_SHARE * len(rows)):
        return sample
    assert side.store is not None
    numbers = sample.rows[broken][:3]
    names = side.store.column("ids", numbers) if "ids" in side.store.columns else None
    listed = ", ".join(str(each) for each in (numbers if names is None else names).tolist())
    what = ("row" if names is None else "id") + ("" if len(numbers) == 1 else "s")
    result.notes.append(
        f"{plural(count, 'row')} of {side.name} {'was' if count == 1 else 'were'} left out, because the distance from "
        f"the median is more than {_BROKEN:g} times the typical one ({what} {listed}{', …' if count > 3 else ''})."
    )
    return sample.at(np.flatnonzero(~broken))


def _check_rows(side: Side, rows: np.ndarray) -> None:
    """Raise an error if the numbers are too large or too small to compare."""
    if rows.any():
        largest = float(np.abs(rows).max())
        check_largest_norm(side.name, largest * float(np.linalg.norm(rows / largest, axis=1).max()))


def _is_constant(result: Sameness, old: np.ndarray, new: np.ndarray) -> bool:
    """Return whether all rows of one side are equal, and set the answer then; raise an error if both sides are so."""
    constant = [not np.ptp(rows, axis=0).any() for rows in (old, new)]
    if all(constant):
        raise TooFewRowsError(f"all rows of {result.old} and of {result.new} are equal: need rows that differ")
    if any(constant):
        result.answer = "different"
        result.decided_by = "old_constant" if constant[0] else "new_constant"
    return any(constant)


def _rms(rows: np.ndarray) -> float:
    return math.sqrt(float(np.mean(np.einsum("ij,ij->i", rows, rows))))


def _compare_sketches(result: Sameness, old: Side, new: Side, engine: Engine, progress: Progress) -> None:
    settings = result.settings
    sketches = [read_sketch(side, settings.missing, settings.zeros, engine, progress) for side in (old, new)]
    result.evidence, result.compared = "sketches", min(sketch.n for sketch in sketches)
    if result.compared < MIN_ROWS:
        result.answer, result.enough = "undecided", _ENOUGH_ROWS
        return
    if _is_constant(result, *(sketch.scatter for sketch in sketches)):
        return
    before, after = (SpaceMoments.of(sketch) for sketch in sketches)
    found = compare_moments(before, after)
    _decide(result, found, min(before.n, after.n))
    if result.answer == "different":
        scale, spread = after.rms_length / before.rms_length, after.spread / before.spread
        if not compare_moments(before, after.scaled(1 / scale)).differs:
            result.answer, result.scale = "rescaled", scale
        elif not compare_moments(before, after.scaled(1 / spread).moved(before.mean)).differs:
            result.answer, result.scale = "shifted", spread
            result.shift = float(np.linalg.norm(after.mean - spread * before.mean)) / after.spread
    dominated = [side.name for side, sketch in zip((old, new), sketches, strict=True) if _is_dominated(sketch)]
    if dominated and result.answer != "same":
        result.answer, result.decided_by, result.enough = "undecided", "broken_rows", None
        result.notes.append(
            f"A few rows hold most of the variance of {' and of '.join(dominated)}, so its mean and covariance say "
            "little about the others: find these rows with isoscope audit --rows and fix or drop them, or compare the "
            "vectors themselves."
        )
    result.notes.append("A sketch holds only means and covariances; other differences are not detected.")


def _is_dominated(sketch: Sketch) -> bool:
    """Return whether a few rows hold most of the variance: the share of the fourth powers shows their weight."""
    trace = float(np.trace(sketch.scatter))
    return sketch.quartic / trace / trace > max(_DOMINATED, 10 / sketch.n)


def _decide(result: Sameness, found: Comparison, n: int) -> None:
    """Set the answer and the test that decided: the one with the smallest p-value, relative to its level."""
    result.tests, result.error_rate = list(found.tests), LEVEL
    if found.differs:
        result.answer = "different"
        result.decided_by = min(
            found.tests, key=lambda test: (test.p_value or 0.0, -test.value / abs(test.limit or 1))
        ).name
    elif n < found.enough:
        result.answer, result.enough = "undecided", max(found.enough, _ENOUGH_ROWS)
    else:
        result.answer = "same"
        result.decided_by = "classifier" if found.auc is not None else "covariances"
    result.notes.append(_CONTENT_NOTE)
