"""Verdicts on the claims of the paper "Isotropic word representation in BERT"."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from isoscope.studies.formatting import format_number, format_range
from isoscope.studies.isotropic_word_representation.measure import REPAIR, arm_key
from isoscope.studies.study import Case, Value
from isoscope.studies.verdicts import (
    ABOVE_ZERO,
    BELOW_ZERO,
    Evidence,
    correlation_interval,
    count_cases,
    difference_interval,
    judge_claims,
    share_interval,
)

if TYPE_CHECKING:
    from isoscope.studies.isotropic_word_representation.outcome import ArmResults
    from isoscope.studies.study import Bounds, Published, Verdict

_ANISOTROPIC_LIMIT = -3.0  # in log10
_ISOTROPIC_LIMIT = 0.4
_EQUAL_MARGIN = 0.5  # in points of Spearman's ρ
_MIN_LAYER_SHARE = 0.9
_MIN_LOG_RISE = 1.0  # in powers of ten
_NEAR_ZERO = 0.05
_EPS = 1e-9  # for limits that equality meets
LIMITS_NOTE = "We chose the thresholds in the rules, because the slides give none."
_STATED = "stated without numbers"
_FIT_NOTE = (
    "As in the authors' notebook, repairs are fitted on the scored sentences. Intervals are computed over the pairs "
    "of a set and are conservative."
)
NamedValue = tuple[str, Value]


def make_verdicts(published: Published, results: ArmResults) -> list[Verdict]:
    """Return the verdict on each claim."""
    evidence = {
        "anisotropic": lambda: _anisotropic_evidence(published, results),
        "layers": lambda: _layers_evidence(results),
        "isotropy": lambda: _isotropic_evidence(published, results),
        "similarity": lambda: _similarity_evidence(published, results),
        "global": lambda: _variant_evidence(published, results, REPAIR, ">", ("mean", "mean-pca")),
        "global-harms": lambda: _variant_evidence(published, results, "mean-pca", "<", ("none",)),
        "directions": lambda: _variant_evidence(published, results, REPAIR, ">", ("kmeans-mean",)),
        "clusterer": lambda: _variant_evidence(published, results, REPAIR, "~", ("gmm-mean-pca",)),
        "classification": lambda: _classification_evidence(published, results),
        "finetuning-isotropy": lambda: _finetuning_isotropy_evidence(published, results),
        "finetuning-accuracy": lambda: _finetuning_accuracy_evidence(published, results),
        "zero-mean": lambda: _zero_mean_evidence(results),
        "offline": lambda: _offline_evidence(results),
    }
    return judge_claims(published.claims, evidence)


def _make_evidence(results: ArmResults, published: str, cases: Sequence[Case], why: str, digits: int) -> Evidence:
    """Return evidence that lists, for each model, the number of agreeing cases and the range of its numbers."""
    parts = []
    for model in results.models:
        own = [each for each in cases if each.words.startswith((f"{model}, ", f"{model}:")) or each.words == model]
        if own:
            agree, against, _ = count_cases(own)
            span = format_range([each.estimate for each in own], digits)
            parts.append(
                f"{model}: {agree} of {len(own)} agree, {against} "
                f"{'contradicts' if against == 1 else 'contradict'} ({span})"
            )
    return Evidence(published, cases, why, "; ".join(parts))


def _model_set_pairs(results: ArmResults) -> Iterable[tuple[str, str]]:
    return ((model, name) for model in results.models for name in results.sets)


def _all_or_none(values: Sequence[Value | None]) -> list[Value] | None:
    """Return the values if all of them are known, else None."""
    known = [each for each in values if each is not None and not math.isnan(each.mean)]
    return known if len(known) == len(values) else None


def _format_published_range(published: Published, table: str, column: str, digits: int) -> str:
    values = [each.value for (_, name), each in published.tables[table].items() if name == column]
    return f"{format_range(values, digits)} over {len(values)} sets"


def _anisotropic_evidence(published: Published, results: ArmResults) -> Evidence:
    cases = []
    for model, name in _model_set_pairs(results):
        there = _all_or_none([results.similarity(model, name, "none", "same", "log_isotropy")])
        cases += [Case.exact(f"{model}, {name}", there[0].mean, (-math.inf, _ANISOTROPIC_LIMIT))] if there else []
    rule = (
        "There is one case for each model and set: the log₁₀ isotropy must be below "
        f"{format_number(_ANISOTROPIC_LIMIT, 0)}."
    )
    return _make_evidence(results, _format_published_range(published, "sets", "unrepaired isotropy", 2), cases, rule, 1)


def _layers_evidence(results: ArmResults) -> Evidence:
    cases = []
    for model in results.models:
        for key, each in results.results.items():
            if key.startswith(f"layers/{model}/") and len(each["layers"]) > 1:
                first, *hidden = (row["cosine"] for row in each["layers"])
                share = sum(cosine > first for cosine in hidden) / len(hidden)
                cases.append(Case.exact(model, 100 * share, (100 * _MIN_LAYER_SHARE - _EPS, math.inf)))
    rule = (
        "There is one case for each model: the percentage of hidden layers whose mean cosine is above that of layer "
        f"0 must be at least {100 * _MIN_LAYER_SHARE:.0f}."
    )
    return _make_evidence(results, _STATED, cases, rule, 0)


def _isotropic_evidence(published: Published, results: ArmResults) -> Evidence:
    cases = []
    for model, name in _model_set_pairs(results):
        there = _all_or_none([results.similarity(model, name, REPAIR, "same", "isotropy")])
        cases += [Case.of(f"{model}, {name}", there[0], (_ISOTROPIC_LIMIT - _EPS, math.inf))] if there else []
    rule = (
        "There is one case for each model and set: the isotropy after a repair fitted on the scored sentences must "
        f"be at least {_ISOTROPIC_LIMIT}."
    )
    return _make_evidence(results, _format_published_range(published, "sets", "repaired isotropy", 2), cases, rule, 2)


def _correlation_difference(
    results: ArmResults, model: str, name: str, one: str, others: Sequence[str], measure: str
) -> tuple[float, Bounds] | None:
    """Return the difference, in points, between a correlation and the highest of several others, with its interval.

    All correlations use the same pairs, and the interval accounts for the sampling of these pairs. It treats the two
    correlations as independent, which is conservative.
    """
    there = _all_or_none([results.similarity(model, name, each, "same", measure) for each in (one, *others)])
    if there is None:
        return None
    pairs = results.similarity(model, name, one, "same", "pairs")
    n = 0 if pairs is None else int(pairs.mean)
    mine, other = there[0].mean, max(each.mean for each in there[1:])
    (low, high), (their_low, their_high) = (
        correlation_interval(each / 100, n, ranks=measure == "spearman") for each in (mine, other)
    )
    interval = difference_interval((mine, (100 * low, 100 * high)), (other, (100 * their_low, 100 * their_high)))
    return mine - other, interval


def _similarity_evidence(published: Published, results: ArmResults) -> Evidence:
    gains = [
        published.tables["sets"][name, f"repaired {each}"].value
        - published.tables["sets"][name, f"unrepaired {each}"].value
        for name in published.rows("sets")
        for each in ("Pearson", "Spearman")
    ]
    cases = []
    for model, name in _model_set_pairs(results):
        both = [
            _correlation_difference(results, model, name, REPAIR, ("none",), each) for each in ("pearson", "spearman")
        ]
        there = [each for each in both if each is not None]
        if len(there) == 2:
            least, interval = min(there, key=lambda each: each[0])
            cases.append(Case(f"{model}, {name}", least, interval, ABOVE_ZERO))
    rule = (
        "There is one case for each model and set: the smaller of the two increases in correlation, in points, must be "
        "above 0."
    )
    theirs = f"{format_range(gains, 1)} points higher"
    return _make_evidence(results, theirs, cases, f"{rule} {_FIT_NOTE}{_format_train_fit(results)}", 1)


def _format_train_fit(results: ArmResults) -> str:
    """Return, as text, in how many cases a repair fitted on a train split raises both correlations."""
    rises = []
    for model, name in _model_set_pairs(results):
        there = _all_or_none(
            [results.similarity(model, name, v, "train", m) for m in ("pearson", "spearman") for v in ("none", REPAIR)]
        )
        rises += [there[1].mean > there[0].mean and there[3].mean > there[2].mean] if there else []
    if not rises:
        return ""
    return f" If the repair is fitted on a train split, both rise in {sum(rises)} of {len(rises)} cases."


def _variant_evidence(
    published: Published, results: ArmResults, one: str, sign: str, others: tuple[str, ...]
) -> Evidence:
    """Return evidence on the difference in Spearman's ρ between one variant and the best of the others."""
    columns = [each for each in published.columns("variants") if each.endswith("Spearman")]
    theirs = [
        f"{column.split()[0]} {format_number(published.tables['variants'][one, column].value, 1)} vs. "
        + " and ".join(format_number(published.tables["variants"][each, column].value, 1) for each in others)
        for column in columns
    ]
    claimed = {">": ABOVE_ZERO, "<": BELOW_ZERO, "~": (-_EQUAL_MARGIN, math.inf)}[sign]
    cases = []
    for model, name in _model_set_pairs(results):
        there = _correlation_difference(results, model, name, one, others, "spearman")
        cases += [Case(f"{model}, {name}", *there, claimed)] if there else []
    words = {">": "above 0", "<": "below 0", "~": f"above {format_number(-_EQUAL_MARGIN, 1)}"}[sign]
    rule = (
        f"There is one case for each model and set: the difference in Spearman's ρ, in points, must be {words}. "
        f"{_FIT_NOTE}"
    )
    return _make_evidence(results, "; ".join(theirs), cases, rule, 1)


def _format_published(published: Published, table: str, measure: str, digits: int) -> str:
    changes = []
    for row in published.rows(table):
        before, after = (published.tables[table][row, f"{word} {measure}"].value for word in ("unrepaired", "repaired"))
        changes.append(f"{row} {format_number(before, digits)} → {format_number(after, digits)}")
    return "; ".join(changes)


def _classification_evidence(published: Published, results: ArmResults) -> Evidence:
    cases = []
    for model in results.models:
        keys = [arm_key("sst2", model, each) for each in ("none", REPAIR)]
        there = _all_or_none([results.value(key, "accuracy") for key in keys])
        if there:
            rise = Value.of(each - there[0].mean for each in there[1].seeds)
            rows = results.value(keys[0], "dev_rows")
            cases.append(Case(model, rise.mean, _accuracy_interval(there, rise, rows), ABOVE_ZERO))
    rule = (
        "There is one case for each model: the increase in accuracy, in points, must be above 0. Its interval is "
        "computed over the dev sentences, or over the seeds of the clustering if that interval is wider."
    )
    return _make_evidence(results, _format_published(published, "classification", "accuracy", 2), cases, rule, 2)


def _accuracy_interval(there: Sequence[Value], rise: Value, rows: Value | None) -> Bounds:
    """Return the wider of two intervals for a gain in accuracy: over the clustering seeds, or over the sentences."""
    if rows is None:  # missing from arms of earlier versions
        return rise.interval
    before, after = (
        (each.mean, tuple(100 * end for end in share_interval(each.mean / 100, int(rows.mean)))) for each in there[:2]
    )
    sentences = difference_interval(after, before)  # type: ignore[arg-type]
    both = [each for each in (sentences, rise.interval) if not math.isnan(each[0])]
    return max(both, key=lambda each: each[1] - each[0])


def _finetuning_differences(
    results: ArmResults, first: tuple[str, ...], then: tuple[str, ...], *names: str
) -> Iterable[NamedValue]:
    """Yield, for each task and model, the difference between two arms in one of their results, paired by seed."""
    for task in results.tasks:
        for model in results.models:
            before, after = (
                results.values_by_seed(arm_key("finetune", task, model, how), *where, *names)
                for how, *where in (first, then)
            )
            differences = [after[seed] - before[seed] for seed in before if seed in after]
            if differences and all(map(math.isfinite, differences)):
                yield f"{model}, {task}", Value.of(differences)


def _finetuning_isotropy_evidence(published: Published, results: ArmResults) -> Evidence:
    rises = _finetuning_differences(results, ("none", "read"), ("repair", "read"), "log_isotropy")
    cases = [Case.over_seeds(words, value, (_MIN_LOG_RISE, math.inf)) for words, value in rises]
    rule = (
        "There is one case for each task and model: the increase in log₁₀ isotropy (mean over the seeds) must be "
        "above 1 (ten times as isotropic)."
    )
    return _make_evidence(results, _format_published(published, "finetuning", "isotropy", 2), cases, rule, 1)


def _finetuning_accuracy_evidence(published: Published, results: ArmResults) -> Evidence:
    falls = _finetuning_differences(results, ("none",), ("repair",), "accuracy")
    cases = [Case.over_seeds(words, value, BELOW_ZERO) for words, value in falls]
    rule = (
        "There is one case for each task and model: the difference in accuracy, in points (mean over the seeds), "
        "must be below 0."
    )
    return _make_evidence(results, _format_published(published, "finetuning", "accuracy", 1), cases, rule, 1)


def _zero_mean_evidence(results: ArmResults) -> Evidence:
    cases = []
    for task in results.tasks:
        for model in results.models:
            there = _all_or_none([results.value(arm_key("finetune", task, model, "none"), "mean_share")])
            cases += [Case.over_seeds(f"{model}, {task}", there[0], (-math.inf, _NEAR_ZERO))] if there else []
    rule = (
        "There is one case for each task and model, fine-tuned without the repair: the squared length of the mean "
        f"vector divided by the mean squared length must be below {_NEAR_ZERO:g}."
    )
    return _make_evidence(results, _STATED, cases, rule, 2)


def _offline_evidence(results: ArmResults) -> Evidence:
    rises = _finetuning_differences(results, ("none", "last"), ("none", "offline"), "log_isotropy")
    cases = [Case.over_seeds(words, value, (-math.inf, _EPS)) for words, value in rises]
    rule = (
        "There is one case for each task and model, fine-tuned without the repair: the increase in log₁₀ isotropy "
        "must be at most 0."
    )
    return _make_evidence(results, f"{_STATED}, next to a table in which isotropy rises", cases, rule, 1)
