"""Measure how much each regularizer, with three weights, costs in task score: two tasks, two models, three seeds.

make regularizer-weights DATA=folder MODELS=folder RUNS=folder

DATA contains sst2 and banking77, and MODELS contains splade-tiny and all-MiniLM-L6-v2. Each run is kept as a JSON file
in RUNS. Rerun the command to resume. All arms with seed 0 run first, then the other seeds, the largest weights last, so
that a partial table shows what matters for the choice of default weights.
"""

from __future__ import annotations

import argparse
import math
import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median, stdev, variance
from typing import Any

from scipy.stats import chi2

from pages import write_table
from training_tasks import banking, read_finished, run_all, sst2

MODELS = {"splade-tiny": 5e-4, "all-MiniLM-L6-v2": 1e-4}
"""The models and their learning rates."""
TASKS = {"sst2": sst2, "banking8": banking}
WEIGHTS = {
    "persistent-entropy": (0.1, 1.0, 10.0),
    "istar": (0.1, 1.0, 10.0),
    "unbiased": (0.01, 0.1, 1.0),
    "cosreg": (0.1, 1.0, 10.0),
}
LABELS = {
    "persistent-entropy": "`PersistentEntropy`",
    "istar": "`IStar`",
    "unbiased": "`UnbiasedIsoScore`",
    "cosreg": "`CosReg`",
}
ARMS = [("none", 0.0), *((name, weight) for name, weights in WEIGHTS.items() for weight in weights)]
STEPS, BATCH_SIZE, DEV_ROWS, LENGTH, PROBE = 80, 16, 320, 16, 64


def is_largest(arm: tuple[str, float]) -> bool:
    name, weight = arm
    return name in WEIGHTS and weight == max(WEIGHTS[name])


def run_name(model: str, task: str, arm: tuple[str, float], seed: int) -> str:
    return f"{model}+{task}+{arm[0]}+{arm[1]:g}+{seed}"


def run(name: str, data: Path, models: Path, runs: Path) -> dict[str, Any]:
    """Fine-tune once; return the score, the ratio of gradients and the shape of the last layer."""
    import torch

    import isoscope

    torch.set_num_threads(1)
    model, task_name, regularizer, weight, seed = name.split("+")
    task = TASKS[task_name](data, STEPS * BATCH_SIZE, DEV_ROWS)
    folder = runs / "unfinished" / name
    found = isoscope.finetune(
        str(models / model),
        task,
        output=folder,
        regularizer=regularizer,
        weight=None if regularizer == "none" else float(weight),
        seeds=[int(seed)],
        epochs=STEPS / math.ceil(len(task.train) / BATCH_SIZE),
        batch_size=BATCH_SIZE,
        learning_rate=MODELS[model],
        max_length=LENGTH,
        group_lengths=True,
        probe=PROBE,
        every=STEPS // 2,
    )
    last = found.layers[-1]
    shape = {key: found.final[f"{last}/{key}"].mean for key in ("isoscore_unbiased", "mean_cosine")}
    ratio = found.gradient_ratio.mean
    shutil.rmtree(folder)
    return {
        "score": found.final[found.settings.measure].mean,
        "baseline": found.baseline[found.settings.measure],
        "gradient_ratio": None if math.isnan(ratio) else ratio,
        "seconds": found.seeds[0].seconds,
        "train_rows": found.settings.train_rows,
        "dev_rows": found.settings.dev_rows,
        **shape,
    }


PLACES = [(model, task) for model in MODELS for task in TASKS]


class Table:
    """The finished runs, by place (model and task) and arm."""

    def __init__(self, found: dict[str, dict[str, Any]], seeds: list[int]) -> None:
        self.runs = len(found)
        self.cells = {
            (place, arm): [found[name] for seed in seeds if (name := run_name(*place, arm, seed)) in found]
            for place in PLACES
            for arm in ARMS
        }

    def scores(self, place: tuple[str, str], arm: tuple[str, float]) -> list[float]:
        return [each["score"] for each in self.cells[place, arm]]

    def noise(self, place: tuple[str, str]) -> float:
        """Return the standard deviation of a score over seeds, from the median variance of all arms.

        Each variance is divided by the median of its distribution for normal scores. Arms that fail hardly affect a
        median.
        """
        variances = [
            variance(scores) * (len(scores) - 1) / chi2.median(len(scores) - 1)
            for arm in ARMS
            if len(scores := self.scores(place, arm)) > 1
        ]
        return math.sqrt(median(variances)) if variances else math.nan

    def loss_of_score(self, place: tuple[str, str], arm: tuple[str, float]) -> float:
        """Return how far the mean score is below that without a regularizer, in standard errors of the difference."""
        ours, plain = self.scores(place, arm), self.scores(place, ("none", 0.0))
        if not (ours and plain):
            return math.nan
        error = self.noise(place) * math.sqrt(1 / len(ours) + 1 / len(plain))
        return (fmean(plain) - fmean(ours)) / error if error else math.nan

    def is_harmless(self, arm: tuple[str, float]) -> bool:
        """Return whether no place loses more than two standard errors."""
        return all(not self.loss_of_score(place, arm) > 2 for place in PLACES)

    def ratio(self, place: tuple[str, str], arm: tuple[str, float]) -> float | None:
        """Return the mean ratio of gradients, or None without a regularizer."""
        known = [each["gradient_ratio"] for each in self.cells[place, arm] if each["gradient_ratio"] is not None]
        return fmean(known) if known else None

    def harm_by_ratio(self) -> str:
        """Return in how many cells of the table the score is significantly lower, by the ratio of gradients."""
        parts = []
        for low, high, name in ((1, math.inf, "above 1"), (0.3, 1, "from 0.3 to 1"), (0, 0.3, "below 0.3")):
            cells = [
                (place, arm)
                for place in PLACES
                for arm in ARMS
                if (ratio := self.ratio(place, arm)) is not None and low <= ratio < high
            ]
            harmed = sum(self.loss_of_score(place, arm) > 2 for place, arm in cells)
            parts.append(f"{harmed} of {len(cells)} with a ratio {name}")
        return ", ".join(parts)

    def row(self, arm: tuple[str, float]) -> str:
        name, weight = arm
        cells = ["no regularizer" if name == "none" else LABELS[name], "" if name == "none" else f"{weight:g}"]
        for place in PLACES:
            scores = self.scores(place, arm)
            text = f"{fmean(scores):.3f}" + (f" ± {stdev(scores):.3f}" if len(scores) > 1 else "") if scores else "–"
            cells.append(f"**{text}**" if name != "none" and self.loss_of_score(place, arm) > 2 else text)
        ratios = [ratio for place in PLACES if (ratio := self.ratio(place, arm)) is not None]
        cells.append(f"{min(ratios):.2g} to {max(ratios):.2g}" if ratios else "")
        known = all(not math.isnan(self.loss_of_score(place, arm)) for place in PLACES)
        verdict = ("no" if self.is_harmless(arm) else "yes") if known else "not measured yet"
        cells.append("" if name == "none" else verdict)
        return f"| {' | '.join(cells)} |"

    def render(self, seeds: list[int]) -> str:
        total = len(PLACES) * len(ARMS) * len(seeds)
        partial = "" if self.runs == total else f" (**{self.runs} of {total} are finished; the table is partial**)"
        shown = [next(iter(cells), None) for place in PLACES if (cells := self.cells[place, ARMS[0]]) is not None]
        baselines = {place[1]: cell["baseline"] for place, cell in zip(PLACES, shown, strict=True) if cell}
        constant = " and ".join(f"{value:.2f} on {task}" for task, value in baselines.items())
        noise = ", ".join(f"{self.noise(place):.3f}" for place in PLACES)
        rates = " and ".join(f"{rate:g} ({model})" for model, rate in MODELS.items())
        names = " | ".join(f"{model}, {task}" for model, task in PLACES)
        return "\n".join(
            [
                f"The table shows the accuracy on {DEV_ROWS} held-out texts at the end of training, as mean ± standard "
                f"deviation over {len(seeds)} seeds. A constant prediction has an accuracy of {constant}. There are "
                f"{total} runs{partial} of {STEPS} steps with batches of {BATCH_SIZE} texts of at most {LENGTH} "
                f"tokens, at learning rates of {rates}. The tasks are SST-2 and the 8 largest classes of BANKING77. A "
                "bold score is more than two standard errors below that without a regularizer. The standard deviation "
                f"between seeds is {noise} (in the order of the columns), computed from the median variance over all "
                "arms. The ratio is the norm of the gradient of the term relative to that of the task, as the range "
                "over the four columns. Versions: "
                f"isoscope {version('isoscope')}, torch {version('torch')}, transformers {version('transformers')}, "
                f"{platform.machine()}.",
                "",
                f"| regularizer | weight | {names} | gradient ratio | harms |",
                f"|---|---|{'---|' * len(PLACES)}---|---|",
                *(self.row(arm) for arm in ARMS),
                "",
                f"Scores in bold: {self.harm_by_ratio()}.",
            ]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="how many runs at once, each with one thread")
    parser.add_argument("--only-table", action="store_true", help="make the table from the finished runs")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    options = parser.parse_args()
    seeds = list(range(options.seeds))
    every = sorted(
        ((seed, arm, place) for seed in seeds for arm in ARMS for place in PLACES),
        key=lambda each: (each[0] > 0, each[0] > 0 and is_largest(each[1]), each[0]),
    )
    names = [run_name(*place, arm, seed) for seed, arm, place in every]
    if options.only_table:
        found = read_finished(names, options.runs)
    else:
        found = run_all(names, options.runs, run, options.data, options.models, options.runs, jobs=options.jobs)
    text = Table(found, seeds).render(seeds)
    print(text)
    if options.page:
        write_table(options.page, text, "regularizer-weights")


if __name__ == "__main__":
    main()
