"""Kudrjashov et al.: fine-tuning with the persistent entropy of each class's [CLS] states as a regulariser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from isoscope._core.errors import InputError
from isoscope.finetuning.task_data import stratified_sample
from isoscope.studies.finetuned import SPEEDUP_PARAMETERS, check_training, finetune_arm, speedup_notes, speedup_options
from isoscope.studies.reading import tasks
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
    from isoscope.finetuning.task_data import Task
    from isoscope.studies.datasets import Model
    from isoscope.studies.study import ArmContext, Published, Results, Setting

_SETTINGS: dict[str, dict[str, Any]] = {
    NONE: {},
    "selected bars": {"regularizer": "persistent-entropy"},
    "all bars": {"regularizer": "persistent-entropy", "select": False},
}
_SIZES = {"cola": (8551, 1.0), "mrpc": (3668, 3.5)}
"""Rows to learn from, and how much longer than a sentence of CoLA they are: for the time left."""
_OTHERS = {
    "isoscore_unbiased": "IsoScore, unbiased",
    "mean_cosine": "mean cosine",
    "two_nn": "TwoNN dimension",
    "silhouette": "silhouette of the classes",
}
_BEFORE = "before training"


class ShrinkTheLongest(Study):
    """Whether the entropy of the bars of each class makes [CLS] states more isotropic, at what cost to the task."""

    name = "shrink-the-longest"
    about = (
        "A model is fine-tuned without a regularizer, with the persistent entropy of the selected bars of each class's "
        "[CLS] states in a batch, and with that of all bars. The anisotropy of the last layer's [CLS] states and the "
        "task's score are followed through training; tables hold their means over its last 30%."
    )
    models = ("google-bert/bert-base-uncased", "FacebookAI/roberta-base")
    quick_models = ("sentence-transformers/all-MiniLM-L6-v2",)
    extra = "train"
    parameters: ClassVar = {
        "tasks": Parameter(("mrpc", "cola"), ("cola",), "what is learnt", widens=True),
        "seeds": Parameter((0, 1, 2, 3, 4), (0, 1), "of the head's first weights and the order of rows", widens=True),
        "weight": Parameter(1.0, 1.0, "of the regulariser"),
        "epochs": Parameter(10.0, 3.0, "passes over the training set"),
        "batch_size": Parameter(64, 32, "rows of a batch: what the regulariser sees at once"),
        "learning_rate": Parameter(0.0, 3e-4, "0 is the paper's for the task"),
        "limit": Parameter(0, 384, "rows to learn from, drawn evenly from every class; 0 is all"),
        "dev_limit": Parameter(0, 192, "rows to be scored on, drawn evenly from every class; 0 is all"),
        **SPEEDUP_PARAMETERS,
        "probe": Parameter(64, 64, "rows of the dev set whose [CLS] states are measured"),
        "measurements": Parameter(20, 8, "how often the space and the score are measured"),
    }

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """The tasks."""
        known = [each.name for each in tasks.SETS]
        for name in setting["tasks"]:
            if name not in known:
                raise InputError(f"tasks has {name}: need some of {', '.join(known)}; the paper has mrpc and cola")
        return list(setting["tasks"])

    def arms(self, setting: Setting) -> list[Arm]:
        """A fine-tuning for each seed, task, model and regulariser; all of the first seed come first."""
        check_training(setting)
        for name, least in (("limit", 0), ("dev_limit", 0), ("measurements", 1), ("learning_rate", 0)):
            if not setting[name] >= least:
                raise InputError(f"{name} is {setting[name]}: need {least} at least")
        return [
            _make_arm(setting, task, model, arm, seed)
            for seed in setting["seeds"]
            for task in self.data_sets(setting)
            for model in setting.models
            for arm in ARMS
        ]

    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Tables 2 and 3, figures 1 and 2 for each task and model, and a verdict on each claim."""
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
        note = "MRPC is given by F1 and by accuracy: the paper does not say which of them it reports."
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
        uncertain = next(iter(self.published.tables["anisotropy"].values())).note
        return self._like("anisotropy", rows, (_BEFORE, *ARMS), uncertain)

    def _like(self, key: str, rows: Sequence[Row], columns: Sequence[str], note: str) -> Table:
        where = next(iter(self.published.tables[key].values())).where
        return Table(key, self.published.titles[key], columns, rows, where=where, note=note, row_name="task, model")

    def _published_row(self, table: str, case: TaskModelRuns, words: str = "") -> dict[str, Any]:
        found = {arm: self.published.number(table, f"{case.row} {words}".strip(), arm) for arm in ARMS}
        return {arm: number for arm, number in found.items() if number is not None}


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
    task = _limit_dev(tasks.read_task(name, setting.data), setting["dev_limit"])
    rows = min(setting["limit"] or len(task.train), len(task.train))
    steps = math.ceil(setting["epochs"] * math.ceil(rows / setting["batch_size"]))
    weight = {} if arm == NONE else {"weight": setting["weight"]}
    found = finetune_arm(
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
    return {"family": _family(model), **found}


def _limit_dev(task: Task, limit: int) -> Task:
    if not limit or limit >= len(task.dev):
        return task
    return replace(task, dev=task.dev.part(stratified_sample(task.dev.labels, limit, seed=0)))


def _family(model: Model) -> str:
    """What kind of model it is: it says which of the published rows it is put beside."""
    from transformers import AutoConfig

    from isoscope.training.loading import resolve_model_path

    return str(AutoConfig.from_pretrained(resolve_model_path(model.place), trust_remote_code=False).model_type)


# what became of them


def _collect_cases(setting: Setting, results: Results) -> list[TaskModelRuns]:
    """The tasks and models of which anything is done, each with its arms and seeds."""
    found = []
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
                found.append(TaskModelRuns(task, model.name, runs))
    return found


def _score_names(case: TaskModelRuns) -> tuple[str, ...]:
    """The score that counts, and accuracy where that is F1."""
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
        f"Anisotropy of the [CLS] states through training: {case.words}",
        "Mean over the seeds, with a band of one standard deviation. Published for RoBERTa on MRPC.",
        [_panel(case, words, case.last_layer_key(name)) for name, words in COMPONENTS.items()],
        where="Fig. 1",
    )


def _scores_figure(cases: Sequence[TaskModelRuns]) -> Figure:
    return Figure(
        "scores",
        "The score on the dev set through training",
        "Mean over the seeds, with a band of one standard deviation. Published for RoBERTa on MRPC.",
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
    """The mean over the seeds at the steps that all of them have."""
    series = [
        dict(zip(run["series"][name]["step"], run["series"][name]["value"], strict=True))
        for run in runs
        if name in run["series"]
    ]
    steps = [step for step in series[0] if all(step in each for each in series)] if series else []
    values = [Value.of(each[step] for each in series) for step in steps]
    means = [each.mean for each in values]
    if len(series) < 2:
        return Series(arm, steps, means)
    low, high = ([each.mean + side * each.std for each in values] for side in (-1, 1))
    return Series(arm, steps, means, low, high)


def describe_differences(used: dict[str, Any], row: str, published: Published) -> str:
    """With what a task was learnt otherwise than published, in words."""
    differing = []
    for words, name in _SETTING_NAMES.items():
        theirs = published.number("settings", row, words)
        if theirs is None:
            return f"the paper has no {row}, and no settings for it"
        if used[name] != theirs.value:
            differing.append(f"{words} {used[name]:g} (published {theirs.value:g})")
    return ", ".join(differing) or f"{', '.join(_SETTING_NAMES)} are the published"


_SETTING_NAMES = {each: each.replace(" ", "_") for each in ("learning rate", "weight decay", "batch size", "epochs")}


def _notes(published: Published, setting: Setting, cases: Sequence[TaskModelRuns]) -> list[str]:
    found = [
        f"The paper fine-tunes bert-base-uncased and roberta-base: {case.model}, a {case.family} model, stands beside "
        f"its {case.paper_model}."
        for case in {each.model: each for each in cases}.values()
        if not case.is_paper_model
    ]
    for case in {each.task: each for each in cases}.values():
        used = case.settings
        rows = f"{case.task}: learnt from {used['train_rows']:,} rows, scored on {used['dev_rows']:,}"
        found.append(f"{rows}; {describe_differences(used, case.row, published)}.")
    seeds = len(setting["seeds"])
    theirs = next(each.value for (_, column), each in published.tables["settings"].items() if column == "seeds")
    found += [
        f"{'One seed' if seeds == 1 else f'{seeds} seeds'}; the paper has {theirs:g}. Texts are "
        "read up to 128 tokens (the paper does not say).",
        "The paper follows the [CLS] matrix of batches of 64. Here it is that of the same "
        f"{setting['probe']} rows of the dev set each time, without dropout, so that arms and steps can be compared.",
        "The optimiser is AdamW with 10% of linear warm-up; then the learning rate falls by a cosine, as in the "
        "authors' code (the paper says Adam and does not name what follows the warm-up).",
        "Bars are selected as in the authors' code, which stops at C < 1, as their prose has it, and asks for Q < i; "
        "their Algorithm 1 prints C > 1 and Q ≤ i. Their code has one more term, on by default, of the lengths of the "
        "unselected bars, which its loop maximises, and fails where a class has fewer than 5 rows in a batch. Here "
        "that term is left out, as on the page, and a class with fewer than 3 rows adds nothing.",
    ]
    found += speedup_notes(setting)
    met, small = (sum(run[name] for case in cases for run in case.all_runs) for name in ("clouds", "too_small"))
    if small:
        found.append(f"{small:,} of {met:,} classes in a batch had fewer than 3 rows, and added nothing.")
    return found
