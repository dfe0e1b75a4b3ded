"""Tables of the fine-tuned models, and evidence on the claims about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import plural
from isoscope.studies.aggregation import group_by
from isoscope.studies.formatting import format_number
from isoscope.studies.stable_anisotropic_regularization.training_runs import (
    MIN_MATTHEWS,
    NONE,
    Penalty,
    averages,
    collect_trained,
    group_by_task_and_model,
    penalties,
    pretrained_key,
    select_istar,
    select_learned,
)
from isoscope.studies.study import Case, Holds, Row, Table, Value
from isoscope.studies.verdicts import (
    ABOVE_ZERO,
    BELOW_ZERO,
    Evidence,
    correlation,
    correlation_interval,
    direction,
    share_interval,
)

if TYPE_CHECKING:
    from isoscope.studies.stable_anisotropic_regularization.training_runs import TrainedModel
    from isoscope.studies.study import Bounds, Published, Results, Setting


_CORRELATIONS: dict[str, tuple[Callable[[TrainedModel], float], Callable[[TrainedModel], float], bool]] = {
    "isotropy and score, r": (lambda run: run.isotropy, lambda run: run.score, False),
    "isotropy and score, ρ": (lambda run: run.isotropy, lambda run: run.score, True),
    "tokens' IsoScore and score, ρ": (lambda run: float(run.result["tokens_isoscore"]), lambda run: run.score, True),
    "λ and isotropy, ρ": (lambda run: run.penalty.weight, lambda run: run.isotropy, True),
    "λ and TwoNN, ρ": (lambda run: run.penalty.weight, lambda run: run.mean("two_nn"), True),
    "isotropy and silhouette, ρ": (lambda run: run.isotropy, lambda run: run.silhouette, True),
}


def _correlations(runs: Iterable[TrainedModel], name: str) -> dict[str, tuple[float, Bounds]]:
    """Return a correlation over λ and seeds, with its interval, for each task and model, without collapsed models."""
    x, y, ranks = _CORRELATIONS[name]
    correlations = {}
    for space, own in group_by_task_and_model(select_learned(select_istar(runs))).items():
        both = [(x(each), y(each)) for each in own]
        known = [pair for pair in both if all(map(math.isfinite, pair))]  # equal states have no dimension
        value = correlation([one for one, _ in known], [other for _, other in known], ranks=ranks)
        if not math.isnan(value):
            correlations[space] = value, correlation_interval(value, len(known), ranks=ranks)
    return correlations


# tables


def finetuning_tables(setting: Setting, results: Results, published: Published) -> list[Table]:
    """Return tables of scores, isotropy and dimension by arm, of correlations, and of mean cosines."""
    runs = collect_trained(setting, results)
    if not runs:
        return []
    columns = [each.name for each in penalties(setting)]
    before = {
        f"{task}, {model.name}": results[pretrained_key(task, model.name)]
        for task in setting["tasks"]
        for model in setting.models
        if pretrained_key(task, model.name) in results
    }
    return [
        Table(
            "score",
            "Score on the dev set",
            columns,
            _make_rows(runs, lambda run: run.score, average=True),
            note="The table shows models that trained successfully; models that collapsed to one answer are in "
            "separate rows. An arm's average includes only the seeds for which training succeeded on every task and "
            "model.",
            row_name="task, model",
        ),
        _collapse_table(runs, columns),
        Table(
            "isotropy",
            "Isotropy: IsoScore* of text states, mean over the layers",
            ["before", *columns],
            _make_rows(runs, lambda run: run.isotropy, before=_layer_means(before, "isoscore_star")),
            digits=4,
            row_name="task, model",
        ),
        Table(
            "dimension",
            "Intrinsic dimension (TwoNN) of text states, mean over the layers",
            ["before", *columns],
            _make_rows(runs, lambda run: run.mean("two_nn"), before=_layer_means(before, "two_nn")),
            digits=2,
            row_name="task, model",
        ),
        _correlation_table(runs),
        *_cosine_tables(runs, before, published),
    ]


def _collapse_table(runs: list[TrainedModel], columns: list[str]) -> Table:
    """Return a table of the number of models that collapsed in each arm."""
    rows = []
    for space, own in group_by_task_and_model(runs).items():
        arms = group_by(own, lambda each: each.penalty.name)
        counts = {name: Value.of(float(sum(each.has_collapsed for each in arm))) for name, arm in arms.items()}
        rows.append(Row(space, counts | {"models of each arm": Value.of(float(max(map(len, arms.values()))))}))
    note = (
        f"A model has collapsed if its Matthews correlation on the dev set is below {MIN_MATTHEWS:g}: it "
        "learned nothing."
    )
    return Table(
        "collapsed", "Collapsed models", [*columns, "models of each arm"], rows, note=note, row_name="task, model"
    )


def _format_collapses(runs: Iterable[TrainedModel]) -> str:
    """Return, as text, how many models of each arm collapsed."""
    arms = group_by(runs, lambda each: each.penalty.name)
    counts = {name: sum(each.has_collapsed for each in own) for name, own in arms.items()}
    collapsed = [
        f"{count} of {len(arms[name])} with {name.replace('λ ', 'λ = ')}" for name, count in counts.items() if count
    ]
    return f"Collapsed models are left out: {', '.join(collapsed)}." if collapsed else ""


def _layer_means(before: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, float]:
    return {space: fmean(float(layer[name]) for layer in each["layers"]) for space, each in before.items()}


def _make_rows(
    runs: list[TrainedModel],
    what: Callable[[TrainedModel], float],
    *,
    before: Mapping[str, float] | None = None,
    average: bool = False,
) -> list[Row]:
    """Return a row per task and model, with each arm aggregated over seeds; collapsed models have their own rows."""
    rows = []
    for space, own in group_by_task_and_model(runs).items():
        for collapsed, some in sorted(group_by(own, lambda each: each.has_collapsed).items()):
            arms = group_by(some, lambda each: each.penalty.name)
            first = {"before": Value.of(before[space])} if before and space in before and not collapsed else {}
            ours = {name: Value.of([what(each) for each in arm]) for name, arm in arms.items()}
            rows.append(Row(f"{space}, collapsed" if collapsed else space, first | ours))
    if average and len(group_by_task_and_model(runs)) > 1:
        rows.append(Row("average", {name: Value.of(each) for name, each in averages(runs, what).items()}))
    return rows


def _correlation_table(runs: list[TrainedModel]) -> Table:
    correlations = {name: _correlations(runs, name) for name in _CORRELATIONS}
    rows = [
        Row(space, {name: Value.of(each[space][0]) for name, each in correlations.items() if space in each})
        for space in group_by_task_and_model(runs)
    ]
    return Table(
        "correlations",
        "Correlations over λ and seeds",
        list(_CORRELATIONS),
        rows,
        note="The table covers models that trained successfully, with I-STAR or without a regularizer (λ = 0). r is "
        "Pearson's correlation and ρ is Spearman's. The silhouette is computed for the classes in the last layer's "
        "text states; the other quantities are means over the layers.",
        row_name="task, model",
    )


def _cosine_tables(
    runs: list[TrainedModel], before: Mapping[str, Mapping[str, Any]], published: Published
) -> list[Table]:
    """Return tables of the mean cosine and IsoScore of the last layer's token states, which CosReg regularizes."""
    figures = published.tables["cosine"]
    theirs = dict(
        zip(("none", "CosReg"), (figures["average cosine", each] for each in ("Figure 2", "Figure 3")), strict=True)
    )
    columns = ["before", *dict.fromkeys(each.penalty.name for each in runs)]
    pushed = [each.penalty for each in runs if each.penalty.regularizer == "cosreg"]
    strongest = max(pushed, key=lambda each: each.weight).name if pushed else ""
    cosines = _make_rows(
        runs, _last_layer_getter("cosine"), before={space: float(each["last_cosine"]) for space, each in before.items()}
    )
    beside = {"none": theirs["none"]} | ({strongest: theirs["CosReg"]} if strongest else {})
    cosines = [
        each if each.name.endswith(", collapsed") else Row(each.name, each.ours, beside, "unnamed model")
        for each in cosines
    ]
    scores = _make_rows(
        runs,
        _last_layer_getter("isoscore"),
        before={space: float(each["last_isoscore"]) for space, each in before.items()},
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


def _last_layer_getter(name: str) -> Callable[[TrainedModel], float]:
    return lambda run: float(run.result[f"last_{name}"])


# verdicts


def finetuning_evidence(setting: Setting, results: Results, published: Published) -> dict[str, Callable[[], Evidence]]:
    """Return the evidence on the claims and the observation about fine-tuning, by key."""
    runs = collect_trained(setting, results)
    seeds, tasks, models = (published.tables["setup"][each, "value"].value for each in ("seeds", "tasks", "models"))
    figure = f"shown only in a figure: {seeds:g} seeds"
    averaged = f"{figure}, averages over {tasks:g} tasks and {models:g} models"
    low, high = (format_number(number.value, 3) for number in published.tables["cosine"].values())
    return {
        "steers": lambda: _sign_evidence(figure, runs, "λ and isotropy, ρ", 1),
        "negative": lambda: _sign_evidence(figure, runs, "isotropy and score, ρ", -1),
        "helps": lambda: _comparison_evidence(averaged, runs, "none"),
        "beats-cosreg": lambda: _comparison_evidence(averaged, runs, "cosreg"),
        "dimension": lambda: _sign_evidence(figure, runs, "λ and TwoNN, ρ", 1),
        "silhouette": lambda: _sign_evidence("stated", runs, "isotropy and silhouette, ρ", -1),
        "cosine": lambda: _cosine_evidence(f"average cosine {low} and {high}", runs),
        "collapse": lambda: _collapse_evidence(runs),
    }


def _sign_evidence(published: str, runs: list[TrainedModel], name: str, sign: int) -> Evidence:
    """Return evidence on a correlation that must have this sign for each task and model, without collapsed models."""
    correlations = _correlations(runs, name)
    cases = [Case(space, value, interval, direction(sign)) for space, (value, interval) in correlations.items()]
    side = "above" if sign > 0 else "below"
    why = (
        "There is one case for each task and model: Spearman's ρ over the models that trained successfully must be "
        f"{side} 0."
    )
    without = [space for space in group_by_task_and_model(select_istar(runs)) if space not in correlations]
    if without and cases:
        why += (
            f" There is no case for {'; '.join(without)}: too few models trained successfully, or one of the two "
            "quantities is constant."
        )
    why = f"{why} {_format_collapses(select_istar(runs))}".strip()
    return Evidence(published, cases, why, untested="too few models were trained", digits=2)


def _comparison_evidence(published: str, runs: list[TrainedModel], other: str) -> Evidence:
    """Return evidence on the score of I-STAR (λ < 0) minus that of another arm, paired by seed."""
    gains: list[float] = []
    by_weight: dict[float, list[float]] = {}
    for own in group_by(select_learned(runs), lambda each: (each.task_and_model, each.seed)).values():
        others = [each.score for each in own if each.penalty.regularizer == other and each.penalty.weight >= 0]
        below = [each for each in own if _is_negative(each)]
        if others and below:
            gains.append(fmean(each.score for each in below) - fmean(others))
            for each in below:
                by_weight.setdefault(each.penalty.weight, []).append(each.score - fmean(others))
    why = (
        "The case is the mean difference in score between the models with λ < 0 and those with "
        f"{'no regularizer' if other == 'none' else 'CosReg'}, over seeds, tasks and models. It must be above 0. "
        "Only models that trained successfully are included. "
        f"{_format_collapses(each for each in runs if _is_negative(each))}"
    ).strip()
    if not gains:
        return Evidence(published, why=why, untested="no comparable pair of models trained successfully")
    difference = Value.of(gains)
    low, high = difference.interval
    best, most = max(((weight, fmean(each)) for weight, each in by_weight.items()), key=lambda each: each[1])
    between = "" if math.isnan(low) else f" ({format_number(low, 4)} to {format_number(high, 4)})"
    hindsight = f"in hindsight, the best λ is {format_number(best, 1)} ({format_number(most, 4, signed=True)})"
    mean = format_number(difference.mean, 4, signed=True)
    ours = f"{mean}{between} over {plural(len(gains), 'pair')}; {hindsight}"
    return Evidence(published, [Case.over_seeds("λ < 0 minus the other", difference, ABOVE_ZERO)], why, ours)


def _is_negative(run: TrainedModel) -> bool:
    return run.penalty.regularizer == "istar" and run.penalty.weight < 0


def _collapse_evidence(runs: list[TrainedModel]) -> Evidence:
    """Return evidence on the share of the models with λ < 0 that collapse."""
    below = [each for each in runs if _is_negative(each)]
    count = sum(each.has_collapsed for each in below)
    cases = []
    if below:
        share = count / len(below)
        cases = [Case("share of the models with λ < 0", share, share_interval(share, len(below)), (0.5, math.inf))]
    why = "The case is the share of the models with λ < 0 that collapse, which must be above one half."
    return Evidence("–", cases, why, f"{count} of {plural(len(below), 'model')}")


def _cosine_evidence(published: str, runs: list[TrainedModel]) -> Evidence:
    """Return evidence on whether CosReg lowers the mean cosine and leaves IsoScore nearly unchanged."""
    cases, changes = [], []
    for space, own in group_by_task_and_model(select_learned(runs)).items():
        weight = max((each.penalty.weight for each in own if each.penalty.regularizer == "cosreg"), default=0.0)
        plain, pushed = (
            {each.seed: each for each in own if each.penalty == penalty}
            for penalty in (NONE, Penalty("cosreg", weight))
        )
        seeds = [seed for seed in plain if seed in pushed]
        if not seeds or weight <= 0:
            continue
        cosines, scores = (
            [(_last_layer_getter(name)(plain[seed]), _last_layer_getter(name)(pushed[seed])) for seed in seeds]
            for name in ("cosine", "isoscore")
        )
        fall = Value.of(abs(after) - abs(before) / 2 for before, after in cosines)
        rise = Value.of(after - 1.1 * before for before, after in scores)
        fell = Case.over_seeds(f"{space}, cosine with CosReg minus half of that without", fall, BELOW_ZERO)
        kept = Case.over_seeds(f"{space}, IsoScore with CosReg minus 1.1 times that without", rise, BELOW_ZERO)
        cases += (
            [fell, kept] if fell.holds is Holds.yes else [fell]
        )  # IsoScore is not evidence if the cosine does not fall
        (cosine, less), (score, more) = (map(fmean, zip(*each, strict=True)) for each in (cosines, scores))
        changes.append(
            f"{space}: cosine {format_number(cosine, 3)} → {format_number(less, 3)}, IsoScore "
            f"{format_number(score, 4)} → {format_number(more, 4)}"
        )
    why = (
        "Each task and model has one or two cases, at the largest CosReg weight. The mean cosine of the last "
        "layer's tokens must fall below half of its value without CosReg. If it does, their IsoScore must rise by at "
        "most a tenth."
    )
    return Evidence(
        published, cases, why, "; ".join(changes), untested="CosReg or the arm without a regularizer was not trained"
    )
