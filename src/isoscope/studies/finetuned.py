"""Fine-tuning as an arm of a study: a run of `isoscope.finetune` with one seed, and its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._io.files import expand_user
from isoscope.finetuning.finetune import finetune
from isoscope.finetuning.task_data import stratified_sample
from isoscope.studies.study import Parameter
from isoscope.training.layer_metrics import MEASUREMENTS

if TYPE_CHECKING:
    from isoscope.finetuning.result import SeedOutcome
    from isoscope.finetuning.task_data import Task
    from isoscope.studies.models import Model
    from isoscope.studies.study import ArmContext, Setting

_FOLDER = "finetuning"
SPEEDUP_PARAMETERS: Mapping[str, Parameter] = {
    "group_lengths": Parameter(False, False, "whether to put texts of similar length into the same batch (faster)"),
    "bf16": Parameter(False, False, "whether to train in bfloat16 where that is safe (faster)"),
}
"""Parameters that make fine-tuning faster; they are not part of a paper's protocol."""


def speedup_options(setting: Setting) -> dict[str, Any]:
    """Return the values of `SPEEDUP_PARAMETERS` as options for `isoscope.finetune`."""
    return {name: setting[name] for name in SPEEDUP_PARAMETERS}


def speedup_notes(setting: Setting) -> list[str]:
    """Return a note for the page on each enabled option in `SPEEDUP_PARAMETERS`."""
    words = {
        "group_lengths": "Each batch contains texts of similar length. New batches are formed in each epoch.",
        "bf16": "Training and the measurements during training use bfloat16 where that is safe. Weights, "
        "regularizers and the analysis of the finished model use float32.",
    }
    return [words[name] for name in SPEEDUP_PARAMETERS if setting[name]]


def finetune_arm(bench: ArmContext, model: Model, task: Task, seed: int, **settings: Any) -> dict[str, Any]:
    """Fine-tune a model with one seed and return its results; resume if the arm was interrupted.

    Parameters
    ----------
    bench : ArmContext
        The context of the arm; its folder contains the checkpoints.
    model : Model
        The model to fine-tune.
    task : Task
        A task from `isoscope.studies.datasets.tasks.read_task`.
    seed : int
        The seed of the arm.
    **settings
        Options of `isoscope.finetune`, such as regularizer, weight, epochs and limit. With ``keep_model=True``, the
        model stays in `model_folder` until the arm is done.

    Returns
    -------
    dict
        ``final`` and ``late`` (means over the last 30%) map names to numbers: the scores, the loss on the dev set, and
        the tracker's measurements, such as ``layer_6/anisotropy_1``. ``start`` contains the measurements before the
        first step. ``series`` maps each name to two lists, ``step`` and ``value``. ``measure`` is the name of the main
        score, ``layers`` are the names of the layers from the embeddings up, and ``settings`` are the settings that
        were used. ``clouds`` and ``too_small`` count the groups of states that the regularizer saw, and those that were
        too small. The other keys are ``steps``, ``notes`` and ``collapses``.
    """

    def tell(stage: str, done: int, share: float, note: str = "") -> None:
        bench.tell(share, note)

    folder = expand_user(model.place)
    place = str(folder.absolute()) if folder.exists() else model.place  # regardless of spelling
    found = finetune(place, task, output=bench.folder / _FOLDER, seeds=[seed], progress=tell, **settings)
    one = found.seeds[0]
    series = _series(one)
    return {
        "measure": found.settings.measure,
        "layers": list(found.layers),
        "steps": one.steps,
        "start": {name: each["value"][0] for name, each in series.items() if each["step"][0] == 0},
        "final": one.final,
        "late": one.late,
        "series": series,
        "settings": {
            name: value for name, value in found.settings.to_dict().items() if name != "model" and value is not None
        },
        "notes": list(found.notes),
        "collapses": one.collapses,
        "clouds": one.term_counts.get("clouds", 0),
        "too_small": one.term_counts.get("too_small", 0),
    }


def model_folder(bench: ArmContext, seed: int) -> Path:
    """Return the folder in which `finetune_arm` saves the model."""
    return bench.folder / _FOLDER / f"seed-{seed}" / "model"


def limit_dev(task: Task, limit: int) -> Task:
    """Return the task with at most `limit` dev rows, stratified by class; 0 means all rows."""
    if not 0 < limit < len(task.dev):
        return task
    return replace(task, dev=task.dev.part(stratified_sample(task.dev.labels, limit, seed=0)))


def _series(one: SeedOutcome) -> dict[str, dict[str, list[float]]]:
    """Return the steps and values of each score and measurement, by name."""
    series: dict[str, dict[str, list[float]]] = {}
    scores = [(name, row["step"], row[name]) for row in one.scores for name in row if name != "step"]
    shapes = [(f"{row['layer']}/{name}", row["step"], row[name]) for row in one.layers for name in MEASUREMENTS]
    for name, step, value in (*scores, *shapes):
        own = series.setdefault(name, {"step": [], "value": []})
        own["step"].append(step)
        own["value"].append(float("nan") if value is None else float(value))
    return series
