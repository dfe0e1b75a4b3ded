"""Rudman and Eickhoff (2024): isotropy that can be measured on a batch, and models that are better without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

from isoscope._core.errors import InputError
from isoscope.finetuning.task_data import stratified_sample
from isoscope.studies.finetuned import (
    SPEEDUP_PARAMETERS,
    check_training,
    finetune_arm,
    model_folder,
    speedup_notes,
    speedup_options,
)
from isoscope.studies.reading.tasks import SETS, read_task
from isoscope.studies.stable_anisotropic_regularization.claims import (
    finetuning_observations,
    finetuning_tables,
    finetuning_verdicts,
)
from isoscope.studies.stable_anisotropic_regularization.estimators import (
    ANALYSIS_ZETA,
    DISTRIBUTIONS,
    TRAINING_ZETA,
    estimator_arms,
    estimator_figures,
    estimator_tables,
    estimator_verdicts,
)
from isoscope.studies.stable_anisotropic_regularization.measure import measure_layers
from isoscope.studies.stable_anisotropic_regularization.outcome import finetuning_figures
from isoscope.studies.stable_anisotropic_regularization.runs import penalties, pretrained_key, training_key
from isoscope.studies.study import Arm, ArmContext, Outcome, Parameter, Row, Study, Table, Value

if TYPE_CHECKING:
    from isoscope.finetuning.task_data import Task
    from isoscope.studies.datasets import DataSource, Model
    from isoscope.studies.stable_anisotropic_regularization.runs import Penalty
    from isoscope.studies.study import Published, Results, Setting

_ROWS = {"cola": 8551, "mrpc": 3668, "rte": 2490, "qnli": 104_743, "sst2": 67_349, "sst5": 8544, "wic": 5428}
"""Rows of the training sets, for how long an arm takes."""
_PROBE = 32
"""Rows that the tracker watches: few, for the whole dev set is looked at when training is done."""
SHRINKAGE_STATES = 250_000
"""Token states that training takes for its shrinkage covariance, where the training set has as many."""
_PAPER_TASKS = ("sst2", "rte", "cola", "mrpc", "qnli", "sst5", "qqp", "stsb", "squad")
"""The paper's."""
_PARTS = {"a": "the estimators on clouds of known isotropy", "b": "fine-tuning"}


class StableAnisotropicRegularization(Study):
    """IsoScore* beside the truth, and fine-tuning with I-STAR."""

    name = "stable-anisotropic-regularization"
    about = (
        "Part a draws samples from clouds of known isotropy and compares IsoScore, IsoScore* and the unbiased estimate "
        "with the truth. Part b fine-tunes with I-STAR for several λ, with CosReg and with nothing, and looks at the "
        "score, the isotropy and the intrinsic dimension of every layer."
    )
    models = ("bert-base-cased", "distilbert-base-cased", "albert-base-v2")
    quick_models = ("sentence-transformers/all-MiniLM-L6-v2",)
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "part": Parameter(("a", "b"), ("a", "b"), "a, the estimators; b, fine-tuning", widens=True),
        "clouds": Parameter(tuple(DISTRIBUTIONS), tuple(DISTRIBUTIONS), "clouds of part a", widens=True),
        "sizes": Parameter((16, 64, 256, 1024, 4096), (16, 64, 256, 1024), "rows of a sample, part a", widens=True),
        "dimensions": Parameter(768, 256, "of the clouds of part a"),
        "draws": Parameter(50, 10, "samples of each cloud and size"),
        "zetas": Parameter(tuple(i / 10 for i in range(11)), (0.0, 0.5, 1.0), "ζ for which IsoScore* is drawn, part a"),
        "tasks": Parameter(("sst2", "rte", "cola", "mrpc", "qnli", "sst5"), ("sst2",), "tasks of part b", widens=True),
        "seeds": Parameter((0, 1, 2, 3, 4), (0, 1), "seeds of part b", widens=True),
        "lambdas": Parameter(
            (-5.0, -3.0, -1.0, 0.5, 1.0, 3.0, 5.0), (-5.0, -1.0, 5.0), "weights of I-STAR", widens=True
        ),
        "cosreg": Parameter((1.0,), (1.0,), "weights of CosReg, on the last layer's token states", widens=True),
        "epochs": Parameter(4.0, 3.0, "epochs of training"),
        "batch_size": Parameter(32, 32, "rows of a batch"),
        "learning_rate": Parameter(1e-5, 2e-4, "constant, without warm-up or weight decay"),
        "limit": Parameter(0, 256, "rows to learn from, drawn evenly from every class; 0 is all"),
        "dev_limit": Parameter(0, 300, "rows to be scored on and looked at, drawn evenly from every class; 0 is all"),
        "max_length": Parameter(256, 32, "tokens that are read of a text"),
        **SPEEDUP_PARAMETERS,
        "reference": Parameter(
            250_000, 30_000, "states for the covariance that IsoScore* is pulled towards, but for that of training"
        ),
    }
    extra = "train"

    def extra_for(self, setting: Setting) -> str:
        """Fine-tuning needs torch, the estimators do not."""
        return self.extra if "b" in setting["part"] else ""

    def data_sets(self, setting: Setting) -> Sequence[str]:
        """The tasks of part b."""
        return setting["tasks"] if "b" in setting["part"] else ()

    def arms(self, setting: Setting) -> list[Arm]:
        """The estimators, then the models before training, then seed by seed."""
        unknown = [each for each in setting["part"] if each not in _PARTS]
        if unknown:
            told = " and ".join(f"{key} ({words})" for key, words in _PARTS.items())
            raise InputError(f"part is {unknown[0]}: there are {told}")
        found = estimator_arms(setting) if "a" in setting["part"] else []
        return found + (_training_arms(setting) if "b" in setting["part"] else [])

    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Tables, figures and verdicts of both parts."""
        published = self.published
        trained = finetuning_verdicts(setting, results, published)
        return Outcome(
            tables=[
                *finetuning_tables(setting, results, published),
                *estimator_tables(setting, results),
                *([_setup_table(setting, published)] if "b" in setting["part"] else []),
            ],
            figures=[*estimator_figures(setting, results), *finetuning_figures(setting, results)],
            verdicts=[*estimator_verdicts(setting, results, published), *trained],
            notes=_notes(setting, published),
            observations=finetuning_observations(setting, results, published),
        )


@lru_cache(maxsize=1)
def _read_limited_task(name: str, data: DataSource, dev_limit: int) -> Task:
    """A task's rows, kept for the next arm."""
    found = read_task(name, data)
    if not 0 < dev_limit < len(found.dev):
        return found
    return replace(found, dev=found.dev.part(stratified_sample(found.dev.labels, dev_limit, 0)))


def _training_arms(setting: Setting) -> list[Arm]:
    known = [each.name for each in SETS]
    unknown = [each for each in setting["tasks"] if each not in known]
    if unknown:
        raise InputError(f"no task to fine-tune for is named {unknown[0]}: need {', '.join(known)}")
    check_training(setting)
    for name in ("limit", "dev_limit"):
        if setting[name] < 0:
            raise InputError(f"{name} is {setting[name]}: need a number of rows, or 0 for all of them")
    if 0 in (*setting["lambdas"], *setting["cosreg"]):
        raise InputError("lambdas or cosreg has 0: that is the arm without a regulariser, which is run anyway")
    spaces = [(task, model) for task in setting["tasks"] for model in setting.models]
    found = [_pretrained_arm(task, model, setting) for task, model in spaces]
    for seed in setting["seeds"]:
        for task, model in spaces:
            found += [_training_arm(task, model, seed, each, setting) for each in penalties(setting)]
    return found


def _pretrained_arm(task: str, model: Model, setting: Setting) -> Arm:
    def run(bench: ArmContext) -> dict[str, Any]:
        return _measure_model(model.place, task, setting, bench.tell)

    return Arm(pretrained_key(task, model.name), f"{task}, {model.name} before training", run, cost=5.0)


def _training_arm(task: str, model: Model, seed: int, penalty: Penalty, setting: Setting) -> Arm:
    rows = min(_ROWS[task], setting["limit"] or _ROWS[task])

    def run(bench: ArmContext) -> dict[str, Any]:
        found = _read_limited_task(task, setting.data, setting["dev_limit"])
        learnt = min(len(found.train), setting["limit"] or len(found.train))
        result = finetune_arm(
            ArmContext(bench.folder, bench.shared, lambda share, words: bench.tell(0.9 * share, words)),
            model,
            found,
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
            every=ceil(setting["epochs"] * ceil(learnt / setting["batch_size"])),  # what counts is the end
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
    """Where the authors put the penalties: I-STAR on all layers but the embeddings, CosReg on the last one's tokens."""
    if penalty.regularizer == "cosreg":
        return {"layer": -1, "pool": "tokens"}
    if penalty.regularizer == "none":
        return {}
    from transformers import AutoConfig

    from isoscope.training.loading import mute_transformers, resolve_model_path

    with mute_transformers():
        depth = AutoConfig.from_pretrained(resolve_model_path(model.place), trust_remote_code=False).num_hidden_layers
    return {"layer": list(range(1, depth + 1)), "zeta": TRAINING_ZETA}


def _measure_model(place: str, task: str, setting: Setting, tell: Any) -> dict[str, Any]:
    return measure_layers(
        place,
        _read_limited_task(task, setting.data, setting["dev_limit"]),
        zeta=ANALYSIS_ZETA,
        reference=setting["reference"],
        max_length=setting["max_length"],
        tell=tell,
    )


def _setup_table(setting: Setting, published: Published) -> Table:
    """How much of it was run, beside the authors'."""
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
    if not setting["limit"]:  # fewer rows have fewer states
        ours["states for the shrinkage covariance"] = SHRINKAGE_STATES
    rows = []
    for key in ("setup", "code"):
        for name in (each for each in published.rows(key) if each in ours):
            theirs = published.number(key, name, "value")
            told = {} if theirs is None else {"value": theirs}
            rows.append(Row(name, {"value": Value.of(float(ours[name]))}, told))
    where = published.tables["setup"]["seeds", "value"].where
    return Table("setup", "How much was run", ("value",), rows, where=f"{where}, and the authors' code", digits=2)


def _notes(setting: Setting, published: Published) -> list[str]:
    found = [
        "Figures 4 to 7 are pictures: their numbers were not published as text, so that directions are compared. The "
        "limits in the rules are ours.",
    ]
    if "a" in setting["part"]:
        found.append(
            "Part a: which cloud the authors drew from is not said. Ours have covariances that are known exactly; the "
            "shrinkage covariance is that of a large sample of the same cloud, drawn apart from the small ones."
        )
    if "b" in setting["part"]:
        models = ", ".join(each.name for each in setting.models)
        lacking = [each for each in _PAPER_TASKS if each not in setting["tasks"]]
        cut = f"learnt from {setting['limit']:,} rows of each task" if setting["limit"] else "learnt from all rows"
        if setting["dev_limit"]:
            cut += f", scored on {setting['dev_limit']:,}"
        found += [
            f"Models: {models}; the authors took {', '.join(StableAnisotropicRegularization.models)}.",
            f"Tasks: {', '.join(setting['tasks'])}, {cut}; of the paper's, {', '.join(lacking)} are left out. The "
            "score, at the end of training, is accuracy, for CoLA Matthews' correlation, for MRPC F1; the authors' "
            "code takes accuracy throughout.",
            "The learning rate is constant, without warm-up or weight decay. I-STAR is on the token states of all "
            "layers at once, CosReg on those of the last one. In training the shrinkage covariance is taken anew at "
            f"each epoch, of {SHRINKAGE_STATES:,} token states or all that there are; in the analysis of "
            f"{setting['reference']:,} over all layers.",
            *([] if setting["bf16"] else ["Float32, where the authors train in float16."]),
            "Token states leave padding out, which theirs count; as theirs, the embeddings below the first layer are "
            "left out.",
            "Isotropy of a model is the mean over its layers of IsoScore* of the dev set's text states ([CLS], or the "
            f"last token of a decoder) at ζ {ANALYSIS_ZETA:g}, pulled towards the covariance of that "
            "layer's token states "
            "on the training set, as in the authors' analysis.",
            *speedup_notes(setting),
        ]
    return found
