"""The study of "Shrink the longest" (Kudrjashov et al., 2025): fine-tuning with persistent entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from isoscope.studies.datasets import tasks
from isoscope.studies.finetuned import SPEEDUP_PARAMETERS, finetune_arm, limit_dev, speedup_notes, speedup_options
from isoscope.studies.shrink_the_longest.claims import (
    ARMS,
    COMPONENTS,
    NONE,
    TaskModelRuns,
    format_score_name,
    make_verdicts,
)
from isoscope.studies.study import Arm, Figure, Outcome, Panel, Parameter, Row, Series, Study, Table, Value

if TYPE_CHECKING:
    from isoscope.studies.models import Model
    from isoscope.studies.study import ArmContext, Number, Published, Results, Setting

_SETTINGS: dict[str, dict[str, Any]] = {
    NONE: {},
    "selected bars": {"regularizer": "persistent-entropy"},
    "all bars": {"regularizer": "persistent-entropy", "select": False},
}
_SIZES = {"cola": (8551, 1.0), "mrpc": (3668, 3.5)}
"""The number of training rows, and their length relative to a CoLA sentence, to estimate the remaining time."""
_OTHERS = {
    "isoscore_unbiased": "IsoScore, unbiased",
    "mean_cosine": "mean cosine",
    "two_nn": "TwoNN dimension",
    "silhouette": "silhouette of the classes",
}
_BEFORE = "before training"


class ShrinkTheLongest(Study):
    """A study of whether persistent entropy makes [CLS] states more isotropic, and how it affects the task."""

    name = "shrink-the-longest"
    about = (
        "A model is fine-tuned in three ways: without a regularizer, with the persistent entropy of selected bars, "
        "and with the persistent entropy of all bars. The bars are computed from the [CLS] states of each class in a "
        "batch. During training, the study measures the task's score and the anisotropy of the last layer's [CLS] "
        "states. The tables show means over the last 30% of training."
    )
    models = ("google-bert/bert-base-uncased", "FacebookAI/roberta-base")
    quick_models = ("sentence-transformers/all-MiniLM-L6-v2",)
    extra = "train"
    parameters: ClassVar = {
        "tasks": Parameter(
            ("mrpc", "cola"),
            ("cola",),
            "tasks to fine-tune on",
            widens=True,
            choices=tasks.TASK_NAMES,
        ),
        "seeds": Parameter(
            (0, 1, 2, 3, 4), (0, 1), "seeds for the head's initial weights and the row order", widens=True
        ),
        "weight": Parameter(1.0, 1.0, "weight of the regularizer"),
        "epochs": Parameter(10.0, 3.0, "number of passes over the training set", above=0),
        "batch_size": Parameter(64, 32, "number of rows in a batch, over which the regularizer is computed", least=1),
        "learning_rate": Parameter(0.0, 3e-4, "learning rate; 0 means the paper's value for the task", least=0),
        "limit": Parameter(0, 384, "number of training rows, stratified by class; 0 means all", least=0),
        "dev_limit": Parameter(0, 192, "number of dev rows to score, stratified by class; 0 means all", least=0),
        **SPEEDUP_PARAMETERS,
        "probe": Parameter(64, 64, "number of dev rows whose [CLS] states are measured"),
        "measurements": Parameter(20, 8, "number of times to measure the space and the score during training", least=1),
    }

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """Return the datasets of the tasks."""
        return list(setting["tasks"])

    def arms(self, setting: Setting) -> list[Arm]:
        """Return a fine-tuning arm for each seed, task, model and regularizer, ordered by seed."""
        return [
            _make_arm(setting, task, model, arm, seed)
            for seed in setting["seeds"]
            for task in setting["tasks"]
            for model in setting.models
            for arm in ARMS
        ]

    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Return tables 2 and 3, figures 1 and 2 for each task and model, and the verdict on each claim."""
        cases = _collect_cases(setting, results)
        return Outcome(
            tables=[self._metrics_table(cases), self._anisotropy_table(cases), _other_measures_table(cases)],
            figures=[*map(_anisotropy_figure, cases), _scores_figure(cases)] if cases else [],
            verdicts=make_verdicts(self.published, cases),
            notes=_notes(self.published, setting, cases),
        )

    def _metrics_table(self, cases: Sequence[TaskModelRuns]) -> Table:
        rows = [
            Row(
                f"{case.words}, {format_score_name(score)}",
                case.late_by_arm(score),
                self._published_row("metrics", case),
                case.paper_model,
            )
            for case in cases
            for score in _score_names(case)
        ]
        note = "MRPC is scored by F1 and by accuracy, because the paper does not say which one it reports."
        return self._like("metrics", rows, ARMS, note)

    def _anisotropy_table(self, cases: Sequence[TaskModelRuns]) -> Table:
        rows = []
        for case in cases:
            for name, words in COMPONENTS.items():
                ours = {_BEFORE: case.before(name), **case.late_by_arm(case.last_layer_key(name))}
                rows.append(
                    Row(
                        f"{case.words}, {words}", ours, self._published_row("anisotropy", case, words), case.paper_model
                    )
                )
        return self._like("anisotropy", rows, (_BEFORE, *ARMS), self.published.first("anisotropy").note)

    def _like(self, key: str, rows: Sequence[Row], columns: Sequence[str], note: str) -> Table:
        where = self.published.first(key).where
        return Table(key, self.published.titles[key], columns, rows, where=where, note=note, row_name="task, model")

    def _published_row(self, table: str, case: TaskModelRuns, words: str = "") -> dict[str, Number]:
        return self.published.numbers(table, f"{case.row} {words}".strip(), ARMS)


# arms


def _make_arm(setting: Setting, task: str, model: Model, arm: str, seed: int) -> Arm:
    rows, length = _SIZES.get(task, (10_000, 2.0))
    return Arm(
        key=_arm_key(task, model, arm, seed),
        words=f"{task}, {model.name}, {arm}, seed {seed}",
        run=lambda bench: _run_arm(bench, setting, task, model, arm, seed),
        cost=min(rows, setting["limit"] or rows) * length * setting["epochs"],
    )


def _arm_key(task: str, model: Model, arm: str, seed: int) -> str:
    return f"{task}/{model.name}/{arm}/seed-{seed}"


def _run_arm(bench: ArmContext, setting: Setting, name: str, model: Model, arm: str, seed: int) -> dict[str, Any]:
    task = limit_dev(tasks.read_task(name, setting.data), setting["dev_limit"])
    rows = min(setting["limit"] or len(task.train), len(task.train))
    steps = math.ceil(setting["epochs"] * math.ceil(rows / setting["batch_size"]))
    weight = {} if arm == NONE else {"weight": setting["weight"]}
    result = finetune_arm(
        bench,
        model,
        task,
        seed,
        epochs=setting["epochs"],
        batch_size=setting["batch_size"],
        learning_rate=setting["learning_rate"] or None,
        limit=setting["limit"] or None,
        **speedup_options(setting),
        probe=setting["probe"],
        every=math.ceil(steps / setting["measurements"]),
        **weight,
        **_SETTINGS[arm],
    )
    return {"family": _family(model), **result}


def _family(model: Model) -> str:
    """Return the model type, which determines the published row to compare with."""
    from transformers import AutoConfig

    from isoscope.training.loading import resolve_model_path

    return str(AutoConfig.from_pretrained(resolve_model_path(model.place), trust_remote_code=False).model_type)


# tables and figures


def _collect_cases(setting: Setting, results: Results) -> list[TaskModelRuns]:
    """Return the tasks and models that have results."""
    cases = []
    for task in setting["tasks"]:
        for model in setting.models:
            runs = {
                arm: {
                    seed: results[_arm_key(task, model, arm, seed)]
                    for seed in setting["seeds"]
                    if _arm_key(task, model, arm, seed) in results
                }
                for arm in ARMS
            }
            if any(runs.values()):
                cases.append(TaskModelRuns(task, model.name, runs))
    return cases


def _score_names(case: TaskModelRuns) -> tuple[str, ...]:
    """Return the main score of the task, and also accuracy if the main score is F1."""
    return (case.measure, "accuracy") if case.measure == "f1" else (case.measure,)


def _other_measures_table(cases: Sequence[TaskModelRuns]) -> Table:
    rows = [
        Row(f"{case.words}, {words}", {_BEFORE: case.before(name), **case.late_by_arm(case.last_layer_key(name))})
        for case in cases
        for name, words in _OTHERS.items()
    ]
    title = "Other measures of the same [CLS] states, mean over the last 30% of training"
    return Table("others", title, (_BEFORE, *ARMS), rows, row_name="task, model")


def _anisotropy_figure(case: TaskModelRuns) -> Figure:
    return Figure(
        f"anisotropy-{case.task}-{case.model}",
        f"Anisotropy of the [CLS] states during training: {case.words}",
        "Lines are means over the seeds; bands show one standard deviation. The paper shows this figure for RoBERTa "
        "on MRPC.",
        [_panel(case, words, case.last_layer_key(name)) for name, words in COMPONENTS.items()],
        where="Fig. 1",
    )


def _scores_figure(cases: Sequence[TaskModelRuns]) -> Figure:
    return Figure(
        "scores",
        "Score on the dev set during training",
        "Lines are means over the seeds; bands show one standard deviation. The paper shows this figure for RoBERTa "
        "on MRPC.",
        [
            _panel(case, f"{case.words}, {format_score_name(score)}", score)
            for case in cases
            for score in _score_names(case)
        ],
        where="Fig. 2",
    )


def _panel(case: TaskModelRuns, title: str, name: str) -> Panel:
    return Panel(
        title, [_band_series(arm, list(runs.values()), name) for arm, runs in case.runs.items() if runs], "step", ""
    )


def _band_series(arm: str, runs: Sequence[dict[str, Any]], name: str) -> Series:
    """Return a series of means over the seeds, at the steps that all seeds have in common."""
    series = [
        dict(zip(run["series"][name]["step"], run["series"][name]["value"], strict=True))
        for run in runs
        if name in run["series"]
    ]
    steps = [step for step in series[0] if all(step in each for each in series)] if series else []
    return Series.over_seeds(arm, steps, [Value.of(each[step] for each in series) for step in steps])


def describe_differences(used: dict[str, Any], row: str, published: Published) -> str:
    """Describe how the settings of a task differ from the published settings."""
    differing = []
    for words, name in _SETTING_NAMES.items():
        theirs = published.number("settings", row, words)
        if theirs is None:
            return f"the paper has no settings for {row}"
        if used[name] != theirs.value:
            differing.append(f"{words} {used[name]:g} (published {theirs.value:g})")
    return ", ".join(differing) or f"{', '.join(_SETTING_NAMES)} as published"


_SETTING_NAMES = {each: each.replace(" ", "_") for each in ("learning rate", "weight decay", "batch size", "epochs")}


def _notes(published: Published, setting: Setting, cases: Sequence[TaskModelRuns]) -> list[str]:
    notes = [
        f"The paper fine-tunes bert-base-uncased and roberta-base; {case.model}, a {case.family} model, is compared "
        f"with the paper's {case.paper_model}."
        for case in {each.model: each for each in cases}.values()
        if not case.is_paper_model
    ]
    for case in {each.task: each for each in cases}.values():
        used = case.settings
        rows = f"{case.task}: trained on {used['train_rows']:,} rows, scored on {used['dev_rows']:,}"
        notes.append(f"{rows}; {describe_differences(used, case.row, published)}.")
    seeds = len(setting["seeds"])
    theirs = next(each.value for (_, column), each in published.tables["settings"].items() if column == "seeds")
    notes += [
        f"This run uses {'one seed' if seeds == 1 else f'{seeds} seeds'}; the paper uses {theirs:g}. Texts are "
        "truncated at 128 tokens (the paper does not give a limit).",
        "The paper measures the [CLS] matrix of batches of 64. This study always measures the same "
        f"{setting['probe']} rows of the dev set, without dropout, so that arms and steps can be compared.",
        "The optimizer is AdamW with linear warm-up for 10% of the steps and cosine decay, as in the authors' code. "
        "(The paper mentions Adam and does not describe the schedule after the warm-up.)",
        "Bars are selected as in the authors' code, which stops at C < 1, as their text says, and requires Q < i. "
        "Their Algorithm 1 says C > 1 and Q ≤ i instead. By default, their code adds a term for the lengths of the "
        "unselected bars, and their training loop maximizes this term. The code also fails if a class has fewer than 5 "
        "rows in a batch. This study omits the term, as the paper does, and ignores classes with fewer than 3 rows in "
        "a batch.",
    ]
    notes += speedup_notes(setting)
    met, small = (sum(run[name] for case in cases for run in case.all_runs) for name in ("clouds", "too_small"))
    if small:
        notes.append(f"In {small:,} of {met:,} instances, a class had fewer than 3 rows in a batch and was ignored.")
    return notes
