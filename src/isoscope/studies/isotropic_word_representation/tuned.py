"""Fine-tune with a repair of each batch's [CLS] vectors, and measure the isotropy of these vectors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope.finetuning.finetune import finetune
from isoscope.studies.datasets.tasks import read_task
from isoscope.studies.finetuned import speedup_options
from isoscope.studies.isotropic_word_representation.measure import isotropy

if TYPE_CHECKING:
    from isoscope.finetuning.task_data import Task
    from isoscope.studies.models import Model
    from isoscope.studies.study import ArmContext, Setting

TUNINGS = {"none": "as usual", "repair": "repaired"}
"""The fine-tuning arms: without and with the repair of [CLS] vectors."""
_BATCH = 32
_PROBE = 16  # small, because the tracker's measurements are not used


def tune(setting: Setting, model: Model, task: str, how: str, seed: int, bench: ArmContext) -> dict[str, Any]:
    """Return the dev accuracy, and the isotropy of the [CLS] vectors in each layer and at the input of the head."""
    from isoscope.training.repair_layer import BatchRepair

    found = read_task(task, setting.data)
    rows = min(setting["tuning_rows"] or len(found.train), len(found.train))
    steps = math.ceil(setting["epochs"] * math.ceil(rows / _BATCH))
    repair = BatchRepair(setting["batch_clusters"], setting["batch_components"])
    run = finetune(
        model.place,
        found,
        output=bench.folder / "run",
        seeds=[seed],
        epochs=setting["epochs"],
        batch_size=_BATCH,
        learning_rate=setting["learning_rate"],
        limit=rows,
        **speedup_options(setting),
        every=steps,
        probe=_PROBE,
        repair=repair if how == "repair" else None,
        keep_model=True,
        progress=lambda stage, step, share, note="": bench.tell(0.95 * share, f"step {step}"),
    )
    shape = measure_cls(bench.folder / "run" / f"seed-{seed}" / "model", found, repair, in_model=how == "repair")
    return {
        "accuracy": 100 * run.seeds[0].scores[-1]["accuracy"],
        **shape,
        "rows": rows,
        "steps": run.settings.steps,
    }


def measure_cls(folder: Path, task: Task, repair: Any, *, in_model: bool) -> dict[str, Any]:
    """Return the isotropy of the [CLS] vectors of a saved model on the dev set.

    `read` is the isotropy of the head's input, which is repaired batch by batch if `in_model`. `last` is that of the
    last layer's vectors, and `offline` is that of the same vectors, repaired together after training. `mean_share` is
    the squared length of the last layer's mean vector, divided by the mean squared length of its vectors.
    """
    from transformers import DataCollatorWithPadding

    from isoscope.finetuning.tokenizing import load_model, load_reader
    from isoscope.training.capture import probe_states
    from isoscope.training.repair_layer import Repairing
    from isoscope.transforms.clustered import ClusterNull

    reader = load_reader(str(folder), 128)
    rows = [{name: value for name, value in row.items() if name != "labels"} for row in reader.read(task.dev)[0]]
    collate = DataCollatorWithPadding(reader.tokenizer)
    batches = [dict(collate(rows[start : start + 2 * _BATCH])) for start in range(0, len(rows), 2 * _BATCH)]
    model = load_model(str(folder), task, reader)
    states = probe_states(model, batches, layer="all", pool=reader.pool)
    last = list(states.values())[-1]
    read = last
    if in_model:
        with Repairing(model, repair, reader.pool):
            read = list(probe_states(model, batches, layer=-1, pool=reader.pool).values())[-1]
    clusters = min(repair.n_clusters, len(last))
    offline = ClusterNull(clusters, repair.n_components, random_state=repair.seed).fit_transform(last)
    return {
        "layers": [{"layer": int(layer), **_isotropy(each)} for layer, each in states.items()],
        "read": _isotropy(read),
        "last": _isotropy(last),
        "offline": _isotropy(offline),
        "mean_share": float((last.mean(axis=0) ** 2).sum() / (last**2).sum(axis=1).mean()),
    }


def _isotropy(states: np.ndarray) -> dict[str, float]:
    """Return the isotropy of vectors; NaN if all of them are zero."""
    return isotropy(states) if np.abs(states).max() > 0 else dict.fromkeys(("isotropy", "log_isotropy"), float("nan"))
