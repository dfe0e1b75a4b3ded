"""Measure the effect of the regularizers on a trained model and a task, with the arms of two papers and several seeds.

make regularizers DATA=folder MODEL=folder RUNS=folder

DATA contains cola/train.tsv and cola/dev.tsv, and MODEL contains all-MiniLM-L6-v2. Each arm is a run of
`isoscope finetune` in its own folder in RUNS. Rerun the command to resume.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import isoscope
from isoscope._io.files import atomic_replace
from isoscope._report.training_page import render_training_page
from isoscope.finetuning.task_data import read_glue
from isoscope.training.capture import probe_states
from isoscope.training.history import HISTORY_FILE, History
from pages import write_table

ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("no regularizer", {}),
    "entropy-selected": (
        "persistent entropy, selected bars",
        {"regularizer": "persistent-entropy", "weight": 1.0},
    ),
    "entropy-all": (
        "persistent entropy, all bars",
        {"regularizer": "persistent-entropy", "weight": 1.0, "select": False},
    ),
    "istar+1": ("I-STAR, λ = +1", {"regularizer": "istar", "weight": 1.0}),
    "istar-1": ("I-STAR, λ = −1", {"regularizer": "istar", "weight": -1.0}),
    "unbiased+1": ("unbiased IsoScore, weight +1", {"regularizer": "unbiased", "weight": 1.0}),
    "cosreg": ("CosReg, weight 1", {"regularizer": "cosreg", "weight": 1.0}),
}


def tokens_score(folder: Path, texts: list[str]) -> float:
    """Return the IsoScore of the token states of all layers together, which is what I-STAR regularizes."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    batches = [
        dict(tokenizer(texts[start : start + 64], padding=True, truncation=True, return_tensors="pt"))
        for start in range(0, len(texts), 64)
    ]
    states = probe_states(model, batches, layer="all", pool="tokens")
    return isoscope.sketch(list(states.values())).isoscore()


def run(name: str, options: Any) -> dict[str, Any]:
    """Run one arm; return its outcome and the IsoScore of each seed's token states."""
    folder = options.runs / name
    kept = folder / "tokens.json"
    found = isoscope.finetune(
        str(options.model),
        "cola",
        data=options.data,
        output=folder,
        seeds=options.seeds,
        epochs=options.epochs,
        limit=options.limit,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        every=options.every,
        keep_model=not kept.exists(),
        **ARMS[name][1],
    )
    if not kept.exists():
        texts = read_glue("cola", options.data).dev.texts[:256]
        scores = {str(each.seed): tokens_score(folder / f"seed-{each.seed}" / "model", texts) for each in found.seeds}
        with atomic_replace(kept) as path:
            path.write_text(json.dumps(scores))
        for each in found.seeds:
            shutil.rmtree(folder / f"seed-{each.seed}" / "model")
    return {"outcome": found, "tokens": list(json.loads(kept.read_text()).values())}


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else f"{values[0]:.3f}"


def row(name: str, found: dict[str, Any], last: int) -> str:
    def late(key: str) -> str:
        return spread(found["outcome"].late[key].values)

    layer = f"layer_{last}"
    cells = [
        late("matthews"),
        late(f"{layer}/anisotropy_1"),
        late(f"{layer}/anisotropy_1_centered"),
        late(f"{layer}/isoscore_unbiased"),
        late(f"{layer}/mean_cosine"),
        late(f"{layer}/silhouette"),
        spread(found["tokens"]),
    ]
    return f"| {ARMS[name][0]} | {' | '.join(cells)} |"


def start_row(found: dict[str, Any], last: int) -> str:
    """Return the table row for the model before training."""
    first = [next(r for r in seed.layers if r["step"] == 0 and r["order"] == last) for seed in found["outcome"].seeds]
    keys = ("anisotropy_1", "anisotropy_1_centered", "isoscore_unbiased", "mean_cosine", "silhouette")
    return f"| *before* |  | {' | '.join(spread([r[key] for r in first]) for key in keys)} |  |"


def table(options: Any, tell: Callable[[str], None]) -> str:
    outcomes = {}
    for name in ARMS:
        outcomes[name] = run(name, options)
        tell(f"{ARMS[name][0]}: matthews {outcomes[name]['outcome'].late['matthews'].mean:.3f}")
    last = max(each["order"] for each in outcomes["none"]["outcome"].seeds[0].layers)
    settings = outcomes["none"]["outcome"].settings
    histories = {
        ARMS[name][0]: [
            History.read(options.runs / name / f"seed-{each.seed}" / HISTORY_FILE) for each in found["outcome"].seeds
        ]
        for name, found in outcomes.items()
    }
    (options.runs / "page.html").write_text(render_training_page(histories), encoding="utf-8")
    return "\n".join(
        [
            f"The model is all-MiniLM-L6-v2, trained on {settings.train_rows:,} of the 8,551 training sentences of "
            f"CoLA: {settings.epochs:g} epochs, {len(outcomes['none']['outcome'].seeds)} seeds, batch size "
            f"{settings.batch_size}, learning rate {settings.learning_rate:g} with 10% warm-up and a cosine schedule. "
            "Each value is first averaged over the last 30% of training; the table shows mean ± standard deviation "
            "over the seeds. Anisotropy, unbiased IsoScore, mean cosine and silhouette use the [CLS] states of the "
            "last layer for 256 sentences from the dev set. The last column uses the token states of all layers "
            f"at the end of training. Versions: isoscope {version('isoscope')}, torch {version('torch')}, "
            f"transformers {version('transformers')}, {platform.machine()}.",
            "",
            "| arm | Matthews | anisotropy_1 | anisotropy_1, centered | IsoScore, unbiased | mean cosine | silhouette "
            "| IsoScore, all tokens |",
            "|---|---|---|---|---|---|---|---|",
            start_row(outcomes["none"], last),
            *(row(name, found, last) for name, found in outcomes.items()),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--arms", nargs="+", choices=ARMS, help="run only these arms, and write no table")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    options = parser.parse_args()
    for name in options.arms or ():
        run(name, options)
    if options.arms:
        return
    text = table(options, lambda line: print(line, flush=True))
    print(text)
    if options.page:
        write_table(options.page, text, "regularizers")


if __name__ == "__main__":
    main()
