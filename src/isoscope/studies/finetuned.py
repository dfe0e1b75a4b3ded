"""Fine-tuning as an arm of a study: one seed of `isoscope.finetune`, and its numbers and series for a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import InputError
from isoscope.finetuning.finetune import finetune
from isoscope.studies.study import Parameter
from isoscope.training.layer_metrics import MEASUREMENTS

if TYPE_CHECKING:
    from isoscope.finetuning.result import SeedOutcome
    from isoscope.finetuning.task_data import Task
    from isoscope.studies.datasets import Model
    from isoscope.studies.study import ArmContext, Setting

_FOLDER = "finetuning"
_MINIMUMS = {"batch_size": 1, "max_length": 4, "reference": 2}
SPEEDUP_PARAMETERS: Mapping[str, Parameter] = {
    "group_lengths": Parameter(False, False, "yes: a batch holds texts of like length, which is faster"),
    "bf16": Parameter(False, False, "yes: training computes in bfloat16 where that is safe, which is faster"),
}
"""Parameters of studies that fine-tune: what trains faster, and is no part of a paper's protocol."""


def check_training(setting: Setting) -> None:
    """Refuse a training of no length, by the name of the parameter that makes it so."""
    if setting["epochs"] <= 0:
        raise InputError(f"epochs is {setting['epochs']:g}: need a number above 0")
    for name, least in _MINIMUMS.items():
        if name in setting.values and setting[name] < least:
            raise InputError(f"{name} is {setting[name]}: need {least} at least")


def speedup_options(setting: Setting) -> dict[str, Any]:
    """What `finetune` is told of them."""
    return {name: setting[name] for name in SPEEDUP_PARAMETERS}


def speedup_notes(setting: Setting) -> list[str]:
    """What of them was used, in words for a page."""
    words = {
        "group_lengths": "Batches hold texts of like length, anew in each epoch.",
        "bf16": "Training computes in bfloat16 where that is safe, and so does what is measured meanwhile; weights, "
        "regularisers and looks at a finished model are in float32.",
    }
    return [words[name] for name in SPEEDUP_PARAMETERS if setting[name]]


def finetune_arm(bench: ArmContext, model: Model, task: Task, seed: int, **settings: Any) -> dict[str, Any]:
    """Fine-tune a model with one seed, and give what it came to; one that was interrupted goes on.

    Parameters
    ----------
    bench : Workbench
        The arm's: checkpoints lie in its folder, and it is told how far the training is.
    model : Model
        What is fine-tuned.
    task : Task
        Of `isoscope.studies.reading.tasks.read_task`.
    seed : int
        The arm's seed.
    **settings
        As for `isoscope.finetune`: regularizer, weight, epochs, limit, … With ``keep_model=True`` the model is in
        `model_folder` until the arm is done.

    Returns
    -------
    dict
        ``final`` and ``late`` (means over the last 30%) hold numbers by name: the scores, the loss on the dev set, and
        ``layer_6/anisotropy_1`` and the like for what the tracker measured; ``start`` holds the latter before the first
        step. ``series`` holds for each of these names its ``step`` and its ``value``, two lists. Then ``measure`` (the
        score that counts), ``layers`` (names, from the embeddings up), ``steps``, ``settings`` (those that
        were given or settled), ``notes``, ``collapses``, and ``clouds`` and ``too_small`` (what the regulariser met).
    """

    def tell(stage: str, done: int, share: float, note: str = "") -> None:
        bench.tell(share, note)

    folder = Path(model.place).expanduser()
    place = str(folder.absolute()) if folder.exists() else model.place  # the same model, however it was typed
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
    """Where `finetune_arm` leaves the model that it was told to keep."""
    return bench.folder / _FOLDER / f"seed-{seed}" / "model"


def _series(one: SeedOutcome) -> dict[str, dict[str, list[float]]]:
    """Scores and measurements by name, each as its steps and its values."""
    found: dict[str, dict[str, list[float]]] = {}
    scores = [(name, row["step"], row[name]) for row in one.scores for name in row if name != "step"]
    shapes = [(f"{row['layer']}/{name}", row["step"], row[name]) for row in one.layers for name in MEASUREMENTS]
    for name, step, value in (*scores, *shapes):
        own = found.setdefault(name, {"step": [], "value": []})
        own["step"].append(step)
        own["value"].append(float("nan") if value is None else float(value))
    return found
