"""What the fine-tuned models come to: tables, and whether the claims hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from isoscope.stores.columns import plural
from isoscope.studies.outcome import Holds, Row, Table, Value, Verdict
from isoscope.studies.published import Published
from isoscope.studies.stable_anisotropic_regularization.runs import (
    LEARNT,
    NONE,
    Penalty,
    Trained,
    averages,
    before_key,
    grouped,
    penalties,
    spaces_of,
    trained,
    with_istar,
)
from isoscope.studies.study import Results, Setting
from isoscope.studies.words import number


def _correlation(x: Sequence[float], y: Sequence[float], *, ranks: bool = False) -> tuple[float, float]:
    """A correlation and its p-value; NaN where there is none."""
    from scipy.stats import pearsonr, spearmanr

    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2 or not all(map(math.isfinite, (*x, *y))):
        return math.nan, math.nan
    found = (spearmanr if ranks else pearsonr)(x, y)
    by_chance = 2 / math.factorial(len(x))  # a perfect order of a few points proves little
    return float(found.statistic), max(float(found.pvalue), by_chance)


_CORRELATIONS: dict[str, tuple[Callable[[Trained], float], Callable[[Trained], float], bool]] = {
    "isotropy and score, r": (lambda run: run.isotropy, lambda run: run.score, False),
    "isotropy and score, ρ": (lambda run: run.isotropy, lambda run: run.score, True),
    "tokens' IsoScore and score, ρ": (lambda run: float(run.result["tokens_isoscore"]), lambda run: run.score, True),
    "λ and isotropy, ρ": (lambda run: run.penalty.weight, lambda run: run.isotropy, True),
    "λ and TwoNN, ρ": (lambda run: run.penalty.weight, lambda run: run.mean("two_nn"), True),
    "isotropy and silhouette, ρ": (lambda run: run.isotropy, lambda run: run.silhouette, True),
}


def _correlations(runs: Iterable[Trained], name: str) -> dict[str, tuple[float, float]]:
    """A correlation over λ and seeds with its p-value, for each task and model that has one."""
    x, y, ranks = _CORRELATIONS[name]
    found = {}
    for space, own in spaces_of(with_istar(runs)).items():
        both = [(x(each), y(each)) for each in own]
        known = [pair for pair in both if all(map(math.isfinite, pair))]  # a space that collapsed has no dimension
        found[space] = _correlation([one for one, _ in known], [other for _, other in known], ranks=ranks)
    return {space: each for space, each in found.items() if not math.isnan(each[0])}


# tables


def finetuning_tables(setting: Setting, results: Results, published: Published) -> list[Table]:
    """Scores, isotropy and dimension by arm, correlations, and the cosine beside the published one."""
    runs = trained(setting, results)
    if not runs:
        return []
    columns = [each.name for each in penalties(setting)]
    before = {
        f"{task}, {model.name}": results[before_key(task, model.name)]
        for task in setting["tasks"]
        for model in setting.models
        if before_key(task, model.name) in results
    }
    return [
        Table(
            "score",
            "Score on the dev set",
            columns,
            _rows(runs, lambda run: run.score, average=True),
            note=f"Averages are over the tasks and models in which a seed has every arm. {_idle(runs)}".strip(),
            row_name="task, model",
        ),
        Table(
            "isotropy",
            "Isotropy: IsoScore* of text states, mean of the layers",
            ["before", *columns],
            _rows(runs, lambda run: run.isotropy, before=_of_layers(before, "isoscore_star")),
            digits=4,
            row_name="task, model",
        ),
        Table(
            "dimension",
            "Intrinsic dimension (TwoNN) of text states, mean of the layers",
            ["before", *columns],
            _rows(runs, lambda run: run.mean("two_nn"), before=_of_layers(before, "two_nn")),
            digits=2,
            row_name="task, model",
        ),
        _correlation_table(runs),
        *_cosine_tables(runs, before, published),
    ]


def _idle(runs: Iterable[Trained]) -> str:
    """Which arms learnt nothing, and in how many of their models: they decide much where they are many."""
    arms = grouped(runs, lambda each: each.penalty.name)
    idle = {name: sum(each.idle for each in own) for name, own in arms.items()}
    told = [f"{count} of {len(arms[name])} with {name}" for name, count in idle.items() if count]
    return f"Learnt nothing (Matthews' correlation below {LEARNT:g}): {', '.join(told)}." if told else ""


def _of_layers(before: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, float]:
    return {space: fmean(float(layer[name]) for layer in each["layers"]) for space, each in before.items()}


def _rows(
    runs: list[Trained],
    what: Callable[[Trained], float],
    *,
    before: Mapping[str, float] | None = None,
    average: bool = False,
) -> list[Row]:
    """A row for each task and model: the arms over their seeds, and the model as it came."""
    rows = []
    for space, own in spaces_of(runs).items():
        arms = grouped(own, lambda each: each.penalty.name)
        first = {"before": Value.of(before[space])} if before and space in before else {}
        rows.append(Row(space, first | {name: Value.of([what(each) for each in arm]) for name, arm in arms.items()}))
    if average and len(rows) > 1:
        rows.append(Row("average", {name: Value.of(each) for name, each in averages(runs, what).items()}))
    return rows


def _correlation_table(runs: list[Trained]) -> Table:
    told = {name: _correlations(runs, name) for name in _CORRELATIONS}
    rows = [
        Row(space, {name: Value.of(each[space][0]) for name, each in told.items() if space in each})
        for space in spaces_of(runs)
    ]
    return Table(
        "correlations",
        "Correlations over λ and seeds",
        list(_CORRELATIONS),
        rows,
        note="I-STAR's arms and the one without a regulariser, as λ = 0. r is Pearson's, ρ Spearman's. The "
        "silhouette is that of the classes in the last layer's text states; the rest are means of the layers.",
        row_name="task, model",
    )


def _cosine_tables(runs: list[Trained], before: Mapping[str, Mapping[str, Any]], published: Published) -> list[Table]:
    """The last layer's token states, where CosReg acts."""
    figures = published.tables["cosine"]
    theirs = dict(
        zip(("none", "CosReg"), (figures["average cosine", each] for each in ("Figure 2", "Figure 3")), strict=True)
    )
    columns = ["before", *dict.fromkeys(each.penalty.name for each in runs)]
    pushed = [each.penalty for each in runs if each.penalty.regularizer == "cosreg"]
    strongest = max(pushed, key=lambda each: each.weight).name if pushed else ""
    cosines = _rows(runs, _last("cosine"), before={space: float(each["last_cosine"]) for space, each in before.items()})
    beside = {"none": theirs["none"]} | ({strongest: theirs["CosReg"]} if strongest else {})
    cosines = [Row(each.name, each.ours, beside, "unnamed model") for each in cosines]
    scores = _rows(
        runs, _last("isoscore"), before={space: float(each["last_isoscore"]) for space, each in before.items()}
    )
    where = " and ".join(dict.fromkeys(each.where for each in theirs.values()))
    return [
        Table(
            "cosine",
            "Mean cosine of the last layer's token states",
            columns,
            cosines,
            where=where,
            note=theirs["none"].note,
            row_name="task, model",
        ),
        Table(
            "last",
            "IsoScore of the last layer's token states",
            columns,
            scores,
            digits=4,
            row_name="task, model",
        ),
    ]


def _last(name: str) -> Callable[[Trained], float]:
    return lambda run: float(run.result[f"last_{name}"])


# verdicts


def finetuning_verdicts(setting: Setting, results: Results, published: Published) -> list[Verdict]:
    """What the paper claims of fine-tuning."""
    runs = trained(setting, results)
    seeds, tasks, models = (published.tables["setup"][each, "value"].value for each in ("seeds", "tasks", "models"))
    shown = f"a figure without numbers: {seeds:g} seeds"
    averaged = f"{shown}, averages over {tasks:g} tasks, {models:g} models"
    low, high = (figure.value for figure in published.tables["cosine"].values())
    return [
        _directed(published, "steers", shown, runs, "λ and isotropy, ρ", 1),
        _directed(published, "negative", shown, runs, "isotropy and score, ρ", -1),
        _compared(published, "helps", averaged, runs, "none"),
        _compared(published, "beats-cosreg", averaged, runs, "cosreg"),
        _directed(published, "dimension", shown, runs, "λ and TwoNN, ρ", 1),
        _directed(published, "silhouette", "stated", runs, "isotropy and silhouette, ρ", -1),
        _cosine(published, f"average cosine {number(low, 3)} and {number(high, 3)}", runs),
    ]


def _directed(published: Published, key: str, shown: str, runs: list[Trained], name: str, sign: int) -> Verdict:
    """Whether a correlation has its sign in every task and model."""
    claim, found = published.claim(key), _correlations(runs, name)
    rule = (
        f"Holds if Spearman's ρ is {'above' if sign > 0 else 'below'} 0 for every task and model and differs from it "
        "(p < 0.05) for most; partly if it has that sign for more than half."
    )
    if not found:
        return Verdict(claim, shown, "too few models were trained", Holds.untested, rule)
    right = [p for value, p in found.values() if value * sign > 0]
    sure = sum(p < 0.05 for p in right)
    signed = 2 * len(right) > len(found)
    holds = Holds.no if not signed else Holds.partly
    if len(right) == len(found) and 2 * sure > len(found):
        holds = Holds.yes
    without = [space for space in spaces_of(with_istar(runs)) if space not in found]
    ours = f"ρ {_listed(found)}; {sure} of {len(found)} with p < 0.05 on that side"
    learnt = [each for each in runs if not each.idle]
    if len(learnt) < len(runs) and (among := _correlations(learnt, name)):
        ours += f"; of those that learnt {_listed(among)}"
    ours += f"; none for {'; '.join(without)} (too few models, or one of the two the same in all)" if without else ""
    return Verdict(claim, shown, ours, holds, f"{rule} {_idle(with_istar(runs))}".strip())


def _listed(found: Mapping[str, tuple[float, float]]) -> str:
    return ", ".join(f"{space} {number(value, 2)}" for space, (value, _) in found.items())


def _compared(published: Published, key: str, shown: str, runs: list[Trained], other: str) -> Verdict:
    """Whether I-STAR with λ < 0 scores higher than another arm of the same seed, task and model."""
    claim = published.claim(key)
    rule = (
        "Holds if the mean score of all λ < 0 is higher, and the 95% interval of the difference over seeds, tasks and "
        "models is above 0; partly if only the mean is."
    )
    gains: list[float] = []
    by_weight: dict[float, list[float]] = {}
    for own in grouped(runs, lambda each: (each.space, each.seed)).values():
        beside = [each.score for each in own if each.penalty.regularizer == other and each.penalty.weight >= 0]
        below = [each for each in own if each.penalty.regularizer == "istar" and each.penalty.weight < 0]
        if beside and below:
            gains.append(fmean(each.score for each in below) - fmean(beside))
            for each in below:
                by_weight.setdefault(each.penalty.weight, []).append(each.score - fmean(beside))
    if not gains:
        return Verdict(claim, shown, "not both were trained", Holds.untested, rule)
    difference = Value.of(gains)
    low, high = difference.interval
    holds = Holds.no if difference.mean <= 0 else Holds.yes if low > 0 else Holds.partly
    best, most = max(((weight, fmean(each)) for weight, each in by_weight.items()), key=lambda each: each[1])
    between = "" if math.isnan(low) else f" ({number(low, 4)} to {number(high, 4)})"
    hindsight = f"best in hindsight {_signed(most)} at λ {number(best, 1)}"
    ours = f"{_signed(difference.mean)}{between} over {plural(len(gains), 'pair')}; {hindsight}"
    below_zero = [each for each in runs if each.penalty.regularizer == "istar" and each.penalty.weight < 0]
    return Verdict(claim, shown, ours, holds, f"{rule} {_idle(below_zero)}".strip())


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else ''}{number(value, 4)}"


def _cosine(published: Published, shown: str, runs: list[Trained]) -> Verdict:
    """Whether CosReg takes the cosine away and leaves isotropy as it is."""
    claim = published.claim("cosine")
    rule = (
        "Holds if, with CosReg's largest weight, the mean cosine of the last layer's tokens is under half of what it "
        "is without and their IsoScore rises by a tenth at most, in every task and model; partly if in more than half, "
        "or if the cosine alone does."
    )
    told, good, lower = [], 0, 0
    for space, own in spaces_of(runs).items():
        plain = [each for each in own if each.penalty == NONE]
        weight = max((each.penalty.weight for each in own if each.penalty.regularizer == "cosreg"), default=0.0)
        pushed = [each for each in own if each.penalty == Penalty("cosreg", weight)]
        if not plain or weight <= 0:
            continue
        cosines = [fmean(map(_last("cosine"), each)) for each in (plain, pushed)]
        scores = [fmean(map(_last("isoscore"), each)) for each in (plain, pushed)]
        fell = abs(cosines[1]) < abs(cosines[0]) / 2
        lower += fell
        good += fell and scores[1] <= 1.1 * scores[0]
        told.append(
            f"{space}: cosine {number(cosines[0], 3)} to {number(cosines[1], 3)}, IsoScore {number(scores[0], 4)} to "
            f"{number(scores[1], 4)}"
        )
    if not told:
        return Verdict(claim, shown, "not both were trained", Holds.untested, rule)
    holds = Holds.yes if good == len(told) else Holds.partly if 2 * max(good, lower) > len(told) else Holds.no
    return Verdict(claim, shown, "; ".join(told), holds, rule)
