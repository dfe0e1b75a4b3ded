"""The study of "Stable anisotropic regularization" (Rudman and Eickhoff, 2024): IsoScore* and I-STAR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

from isoscope._core.errors import ParameterError
from isoscope.studies.datasets.tasks import TASK_NAMES, read_task
from isoscope.studies.finetuned import (
    SPEEDUP_PARAMETERS,
    finetune_arm,
    limit_dev,
    model_folder,
    speedup_notes,
    speedup_options,
)
from isoscope.studies.stable_anisotropic_regularization.claims import (
    finetuning_evidence,
    finetuning_tables,
)
from isoscope.studies.stable_anisotropic_regularization.estimators import (
    ANALYSIS_ZETA,
    DISTRIBUTIONS,
    TRAINING_ZETA,
    estimator_arms,
    estimator_evidence,
    estimator_figures,
    estimator_tables,
)
from isoscope.studies.stable_anisotropic_regularization.measure import measure_layers
from isoscope.studies.stable_anisotropic_regularization.outcome import finetuning_figures
from isoscope.studies.stable_anisotropic_regularization.training_runs import penalties, pretrained_key, training_key
from isoscope.studies.study import Arm, ArmContext, Outcome, Parameter, Row, Study, Table, Value
from isoscope.studies.verdicts import judge_claims

if TYPE_CHECKING:
    from isoscope.finetuning.task_data import Task
    from isoscope.studies.datasets.source import DataSource
    from isoscope.studies.models import Model
    from isoscope.studies.stable_anisotropic_regularization.training_runs import Penalty
    from isoscope.studies.study import Published, Results, Setting

_ROWS = {"cola": 8551, "mrpc": 3668, "rte": 2490, "qnli": 104_743, "sst2": 67_349, "sst5": 8544, "wic": 5428}
"""The number of rows in each training set, to estimate the remaining time."""
_PROBE = 32
"""The number of rows that the tracker measures during training; few, because all dev rows are measured at the end."""
SHRINKAGE_STATES = 250_000
"""The number of token states for the shrinkage covariance in training; all states are used if there are fewer."""
_PAPER_TASKS = ("sst2", "rte", "cola", "mrpc", "qnli", "sst5", "qqp", "stsb", "squad")


class StableAnisotropicRegularization(Study):
    """A study of the errors of IsoScore estimators on small samples, and of fine-tuning with I-STAR."""

    name = "stable-anisotropic-regularization"
    about = (
        "Part a draws samples from distributions with known isotropy and compares IsoScore, IsoScore* and the "
        "unbiased estimate with the truth. Part b fine-tunes models with the regularizer I-STAR (with several weights "
        "λ), with CosReg, and without a regularizer. It measures the score, the isotropy and the intrinsic dimension "
        "of every layer."
    )
    models = ("bert-base-cased", "distilbert-base-cased", "albert-base-v2")
    quick_models = ("sentence-transformers/all-MiniLM-L6-v2",)
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "part": Parameter(
            ("a", "b"), ("a", "b"), '"a" tests the estimators, "b" fine-tunes models', widens=True, choices=("a", "b")
        ),
        "clouds": Parameter(
            tuple(DISTRIBUTIONS), tuple(DISTRIBUTIONS), "distributions of part a", widens=True, choices=DISTRIBUTIONS
        ),
        "sizes": Parameter(
            (16, 64, 256, 1024, 4096), (16, 64, 256, 1024), "sample sizes (rows) in part a", widens=True, least=5
        ),
        "dimensions": Parameter(768, 256, "number of dimensions of the distributions in part a", least=2),
        "draws": Parameter(50, 10, "number of samples for each distribution and size", least=2),
        "zetas": Parameter(
            tuple(i / 10 for i in range(11)),
            (0.0, 0.5, 1.0),
            "values of ζ for IsoScore* in the figure of part a",
            least=0,
            most=1,
        ),
        "tasks": Parameter(
            ("sst2", "rte", "cola", "mrpc", "qnli", "sst5"),
            ("sst2",),
            "tasks of part b",
            widens=True,
            choices=TASK_NAMES,
        ),
        "seeds": Parameter((0, 1, 2, 3, 4), (0, 1), "seeds of part b", widens=True),
        "lambdas": Parameter(
            (-5.0, -3.0, -1.0, 0.5, 1.0, 3.0, 5.0), (-5.0, -1.0, 5.0), "weights of I-STAR", widens=True
        ),
        "cosreg": Parameter((1.0,), (1.0,), "weights of CosReg, on the last layer's token states", widens=True),
        "epochs": Parameter(4.0, 3.0, "number of passes over the training set", above=0),
        "batch_size": Parameter(32, 32, "number of rows in a batch", least=1),
        "learning_rate": Parameter(1e-5, 2e-4, "constant learning rate, without warm-up or weight decay"),
        "limit": Parameter(0, 256, "number of training rows, stratified by class; 0 means all", least=0),
        "dev_limit": Parameter(
            0, 300, "number of dev rows to score and measure, stratified by class; 0 means all", least=0
        ),
        "max_length": Parameter(256, 32, "maximum number of tokens in a text; longer texts are truncated", least=4),
        **SPEEDUP_PARAMETERS,
        "reference": Parameter(
            250_000,
            30_000,
            "number of states for the shrinkage covariance of IsoScore* (not used in training)",
            least=2,
        ),
    }
    extra = "train"

    def extra_for(self, setting: Setting) -> str:
        """Return "train" for part b; part a needs no extra."""
        return self.extra if "b" in setting["part"] else ""

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """Return the datasets of the tasks of part b."""
        return setting["tasks"] if "b" in setting["part"] else ()

    def arms(self, setting: Setting) -> list[Arm]:
        """Return the arms for the estimators, for the models before training, and for fine-tuning with each seed."""
        if 0 in (*setting["lambdas"], *setting["cosreg"]):
            raise ParameterError(
                "lambdas or cosreg contains 0: remove the 0, because the arm without a regularizer always runs"
            )
        arms = estimator_arms(setting) if "a" in setting["part"] else []
        return arms + (_training_arms(setting) if "b" in setting["part"] else [])

    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Return the tables, figures and verdicts of both parts."""
        published = self.published
        evidence = estimator_evidence(setting, results) | finetuning_evidence(setting, results, published)
        return Outcome(
            tables=[
                *finetuning_tables(setting, results, published),
                *estimator_tables(setting, results),
                *([_setup_table(setting, published)] if "b" in setting["part"] else []),
            ],
            figures=[*estimator_figures(setting, results), *finetuning_figures(setting, results)],
            verdicts=judge_claims(published.claims, evidence),
            notes=_notes(setting, published),
            observations=judge_claims(published.observations, evidence),
        )


@lru_cache(maxsize=1)
def _read_limited_task(name: str, data: DataSource, dev_limit: int) -> Task:
    """Return a task with at most `dev_limit` dev rows; the task is cached for the next arm."""
    return limit_dev(read_task(name, data), dev_limit)


def _training_arms(setting: Setting) -> list[Arm]:
    pairs = [(task, model) for task in setting["tasks"] for model in setting.models]
    arms = [_pretrained_arm(task, model, setting) for task, model in pairs]
    for seed in setting["seeds"]:
        for task, model in pairs:
            arms += [_training_arm(task, model, seed, each, setting) for each in penalties(setting)]
    return arms


def _pretrained_arm(task: str, model: Model, setting: Setting) -> Arm:
    def run(bench: ArmContext) -> dict[str, Any]:
        return _measure_model(model.place, task, setting, bench.tell)

    return Arm(pretrained_key(task, model.name), f"{task}, {model.name} before training", run, cost=5.0)


def _training_arm(task: str, model: Model, seed: int, penalty: Penalty, setting: Setting) -> Arm:
    rows = min(_ROWS[task], setting["limit"] or _ROWS[task])

    def run(bench: ArmContext) -> dict[str, Any]:
        data = _read_limited_task(task, setting.data, setting["dev_limit"])
        train_rows = min(len(data.train), setting["limit"] or len(data.train))
        result = finetune_arm(
            ArmContext(bench.folder, bench.shared, lambda share, words: bench.tell(0.9 * share, words)),
            model,
            data,
            seed,
            regularizer=penalty.regularizer,
            weight=penalty.weight or None,
            **_penalty_options(penalty, model),
            epochs=setting["epochs"],
            batch_size=setting["batch_size"],
            learning_rate=setting["learning_rate"],
            weight_decay=0.0,
            warmup=0.0,
            schedule="constant",
            max_length=setting["max_length"],
            **speedup_options(setting),
            limit=setting["limit"] or None,
            every=ceil(setting["epochs"] * ceil(train_rows / setting["batch_size"])),  # only the end of training counts
            probe=_PROBE,
            keep_model=True,
        )
        kept = {name: result[name] for name in ("measure", "steps", "notes")}
        scores = {name: value for name, value in result["final"].items() if "/" not in name}
        trained = str(model_folder(bench, seed))
        shape = _measure_model(trained, task, setting, lambda share, words: bench.tell(0.9 + 0.1 * share, words))
        return kept | {"scores": scores, "score": scores[result["measure"]]} | shape

    key = training_key(task, model.name, seed, penalty)
    return Arm(key, f"{task}, {model.name}, seed {seed}, {penalty.name}", run, cost=5 + 0.02 * rows * setting["epochs"])


def _penalty_options(penalty: Penalty, model: Model) -> dict[str, Any]:
    """Return the layers that a penalty applies to in the paper: all layers for I-STAR, and the last for CosReg."""
    if penalty.regularizer == "cosreg":
        return {"layer": -1, "pool": "tokens"}
    if penalty.regularizer == "none":
        return {}
    from transformers import AutoConfig

    from isoscope.training.loading import mute_transformers, resolve_model_path

    with mute_transformers():
        depth = AutoConfig.from_pretrained(resolve_model_path(model.place), trust_remote_code=False).num_hidden_layers
    return {"layer": list(range(1, depth + 1)), "zeta": TRAINING_ZETA}


def _measure_model(place: str, task: str, setting: Setting, tell: Callable[[float, str], None]) -> dict[str, Any]:
    return measure_layers(
        place,
        _read_limited_task(task, setting.data, setting["dev_limit"]),
        zeta=ANALYSIS_ZETA,
        reference=setting["reference"],
        max_length=setting["max_length"],
        tell=tell,
    )


def _setup_table(setting: Setting, published: Published) -> Table:
    """Return a table that compares our settings with those of the authors."""
    ours = {
        "seeds": len(setting["seeds"]),
        "tasks": len(setting["tasks"]),
        "models": len(setting.models),
        "values of λ": len(setting["lambdas"]),
        "smallest λ": min(setting["lambdas"], default=0.0),
        "largest λ": max(setting["lambdas"], default=0.0),
        "learning rate": setting["learning_rate"],
        "batch size": setting["batch_size"],
        "epochs": setting["epochs"],
        "tokens of a text": setting["max_length"],
        "ζ in training": TRAINING_ZETA,
        "ζ in the analysis": ANALYSIS_ZETA,
    }
    if not setting["limit"]:  # with fewer rows, there may be fewer states
        ours["states for the shrinkage covariance"] = SHRINKAGE_STATES
    rows = []
    for key in ("setup", "code"):
        for name in (each for each in published.rows(key) if each in ours):
            numbers = published.numbers(key, name, ["value"])
            rows.append(Row(name, {"value": Value.of(float(ours[name]))}, numbers))
    where = published.tables["setup"]["seeds", "value"].where
    return Table("setup", "Settings of the run", ("value",), rows, where=f"{where}, and the authors' code", digits=2)


def _notes(setting: Setting, published: Published) -> list[str]:
    notes = [
        "The numbers behind figures 4 to 7 were not published, so only the signs of effects are compared. We chose the "
        "thresholds in the rules.",
    ]
    if "a" in setting["part"]:
        notes.append(
            "Part a: the authors do not name their distribution. The covariances of our distributions are known "
            "exactly. The shrinkage covariance is computed from a separate, large sample of the same distribution."
        )
    if "b" in setting["part"]:
        models = ", ".join(each.name for each in setting.models)
        missing = [each for each in _PAPER_TASKS if each not in setting["tasks"]]
        rows = f"trained on {setting['limit']:,} rows of each" if setting["limit"] else "trained on all rows"
        if setting["dev_limit"]:
            rows += f", scored on {setting['dev_limit']:,}"
        notes += [
            f"Models: {models}; the authors used {', '.join(StableAnisotropicRegularization.models)}.",
            f"Tasks: {', '.join(setting['tasks'])}, {rows}. Tasks of the paper that were not run: "
            f"{', '.join(missing)}. The score is measured at the end of training: Matthews correlation for CoLA, F1 "
            "for MRPC, and accuracy for the other tasks. The authors' code uses accuracy for all tasks.",
            "The learning rate is constant, without warm-up or weight decay. I-STAR acts on the token states of all "
            "layers together, and CosReg acts on those of the last layer. During training, the shrinkage covariance "
            f"is computed at each epoch from {SHRINKAGE_STATES:,} token states, or from all states if there are "
            f"fewer. In the analysis, it is computed from {setting['reference']:,} states over all layers.",
            *([] if setting["bf16"] else ["This study trains in float32; the authors train in float16."]),
            "Token states exclude padding, which the authors include. As in their code, the embeddings below the first "
            "layer are left out.",
            "The isotropy of a model is the mean IsoScore* over its layers, computed from the dev set's text states "
            f"([CLS], or the last token for a decoder). As in the authors' analysis, ζ is {ANALYSIS_ZETA:g}, and the "
            "shrinkage covariance is that of the layer's token states on the training set.",
            *speedup_notes(setting),
        ]
    return notes
