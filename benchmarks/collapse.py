"""Count the alarms of the collapse rule in real trainings, healthy and destroyed, and choose its thresholds.

make collapse-calibration DATA=folder MODELS=folder RUNS=folder

DATA contains sst2, banking77, senteval_extra, stsb, wikitext2 and ptb. MODELS contains splade-tiny, all-MiniLM-L6-v2
and stories15M (a decoder). Each run is kept as a JSON file in RUNS, with the tracker's history. Rerun the command to
resume. Thresholds are chosen on every second configuration, and the tables report the other ones.
"""

from __future__ import annotations

import argparse
import itertools
import math
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from isoscope._core.errors import plural
from isoscope.finetuning.result import has_learned, score_constant_prediction, score_logits
from isoscope.losses import CosReg, IStar, UnbiasedIsoScore
from isoscope.training.layer_metrics import CollapseThresholds, find_collapses
from pages import write_table
from training_tasks import banking, read_finished, run_all, sst2, stsb, subjectivity

TINY, MINI, STORIES = "splade-tiny", "all-MiniLM-L6-v2", "stories15M"
TASKS = {"sst2": sst2, "banking8": banking, "subj": subjectivity, "stsb": stsb}
SEEDS = {TINY: 3, MINI: 1, STORIES: 1}
"""The number of seeds; runs of the small model take a few seconds."""
BATCH_SIZE, DEV_ROWS, LENGTH, PROBE, MEASUREMENTS = 16, 320, 24, 64, 10
REGULARIZERS: dict[str, Callable[[], Any]] = {
    "CosReg(1)": lambda: CosReg(1),
    "UnbiasedIsoScore(0.1)": lambda: UnbiasedIsoScore(0.1),
    "CosReg(-10)": lambda: CosReg(-10),
    "IStar(-10)": lambda: IStar(-10, zeta=0),
}


@dataclass(frozen=True)
class Training:
    """The configuration of a training run."""

    model: str
    task: str
    """The name of a task, "pairs" (contrastive), "wikitext2" or "ptb" (language modeling)."""
    learning_rate: float
    steps: int
    fault: str = ""
    """What destroys the model; empty if nothing does."""
    regularizer: str = ""

    @property
    def name(self) -> str:
        parts = (self.model, self.task, f"{self.learning_rate:g}", str(self.steps), self.fault, self.regularizer)
        return "+".join(part.replace(" ", "-") for part in parts if part)

    @property
    def kind(self) -> str:
        family = "decoder" if self.model == STORIES else "encoder"
        work = {"stsb": "regression", "pairs": "contrastive", "wikitext2": "language model", "ptb": "language model"}
        return f"{family}, {work.get(self.task, 'classification')}"


RATE, ATTRACT, CONSTANT, REVERSED = "learning rate too high", "no negatives", "constant labels", "reversed regularizer"
HEALTHY = [
    Training(TINY, "sst2", 5e-4, 200),
    Training(TINY, "sst2", 1e-3, 300),
    Training(TINY, "banking8", 5e-4, 200),
    Training(TINY, "banking8", 2e-3, 200),
    Training(TINY, "stsb", 5e-4, 300),
    Training(MINI, "stsb", 1e-4, 80),
    Training(TINY, "pairs", 2e-4, 100),
    Training(MINI, "pairs", 5e-5, 40),
    Training(TINY, "sst2", 5e-4, 200, regularizer="CosReg(1)"),
    Training(TINY, "banking8", 5e-4, 200, regularizer="UnbiasedIsoScore(0.1)"),
    Training(MINI, "sst2", 1e-4, 80),
    Training(MINI, "sst2", 5e-5, 80),
    Training(MINI, "banking8", 1e-4, 80),
    Training(MINI, "subj", 1e-4, 80),
    Training(STORIES, "sst2", 3e-4, 100),
    Training(STORIES, "banking8", 3e-4, 80),
    Training(STORIES, "subj", 3e-4, 60),
    Training(STORIES, "subj", 1e-4, 60),
    Training(STORIES, "wikitext2", 3e-4, 60),
    Training(STORIES, "ptb", 3e-4, 60),
    Training(TINY, "subj", 5e-4, 200),
    Training(STORIES, "stsb", 3e-4, 80),
]
DESTROYED = [
    Training(TINY, "sst2", 3e-2, 150, RATE),
    Training(TINY, "banking8", 3e-2, 150, RATE),
    Training(MINI, "sst2", 3e-3, 100, RATE),
    Training(MINI, "banking8", 1e-2, 60, RATE),
    Training(TINY, "stsb", 3e-2, 150, RATE),
    Training(MINI, "stsb", 3e-3, 60, RATE),
    Training(STORIES, "sst2", 1e-2, 60, RATE),
    Training(STORIES, "banking8", 1e-2, 60, RATE),
    Training(STORIES, "wikitext2", 3e-2, 60, RATE),
    Training(STORIES, "ptb", 3e-2, 60, RATE),
    Training(TINY, "pairs", 1e-2, 100, ATTRACT),
    Training(MINI, "pairs", 3e-3, 40, ATTRACT),
    Training(STORIES, "pairs", 1e-2, 40, ATTRACT),
    Training(STORIES, "pairs", 3e-3, 40, ATTRACT),
    Training(TINY, "sst2", 1e-3, 150, CONSTANT),
    Training(STORIES, "subj", 3e-4, 60, CONSTANT),
    Training(TINY, "sst2", 1e-3, 150, REVERSED, "CosReg(-10)"),
    Training(TINY, "subj", 1e-3, 150, REVERSED, "IStar(-10)"),
]
TRAININGS = {each.name: each for pair in itertools.zip_longest(HEALTHY, DESTROYED) for each in pair if each is not None}
"""The configurations by name, healthy and destroyed in turn, so that partial tables are balanced."""
CHOSEN_ON = {each.name for part in (HEALTHY, DESTROYED) for each in part[::2]}
"""The configurations on which the thresholds are chosen."""


# training


def run(name: str, data: Path, models: Path) -> dict[str, Any]:
    """Train once; return the tracker's history and whether the model learned or lost its task."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    training_name, _, seed = name.rpartition("+")
    training = TRAININGS[training_name]
    transformers.set_seed(int(seed))
    work = _make_work(training, data, models / training.model)
    return _train(training, work, int(seed))


@dataclass
class Work:
    """A model with its batches: how to compute its loss and its score."""

    model: Any
    rows: list[Any]
    collate: Callable[[list[Any]], Any]
    loss: Callable[[Any], Any]
    probe: list[Any]
    score: Callable[[], dict[str, Any]]
    """Return "value", for which higher is better, and what a verdict needs."""
    judge: Callable[[dict[str, Any], dict[str, Any]], str]
    """Return "learned", "lost" or "neither", given the scores before and after training."""


def _train(training: Training, work: Work, seed: int) -> dict[str, Any]:
    import torch
    from transformers import get_cosine_schedule_with_warmup

    from isoscope import IsotropyTracker, attach

    tracker = IsotropyTracker(work.probe, every=training.steps // MEASUREMENTS)
    attachment = attach(work.model, REGULARIZERS[training.regularizer]()) if training.regularizer else None
    optimizer = torch.optim.AdamW(work.model.parameters(), training.learning_rate)
    schedule = get_cosine_schedule_with_warmup(optimizer, training.steps // 10, training.steps)
    generator = torch.Generator().manual_seed(seed)
    before, losses = work.score(), []
    tracker.measure(work.model, step=0)
    order: list[int] = []
    for step in range(1, training.steps + 1):
        if len(order) < BATCH_SIZE:
            order = torch.randperm(len(work.rows), generator=generator).tolist()
        batch, order = order[:BATCH_SIZE], order[BATCH_SIZE:]
        work.model.train()
        loss = work.loss(work.collate([work.rows[each] for each in batch]))
        losses.append(float(loss.detach()) - (attachment.value if attachment else 0.0))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(work.model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if tracker.is_due(step):
            # A trainer reports the mean loss after the measurement, so the tracker knows that of the previous window.
            tracker.measure(work.model, step=step)
            tracker.note_loss(float(np.mean(losses)))
            losses = []
    after = work.score()
    if attachment:
        attachment.detach()
    return {
        "before": before["value"],
        "after": after["value"],
        "outcome": work.judge(before, after),
        "history": [dict(row) for row in tracker.history],
    }


def _make_work(training: Training, data: Path, model: Path) -> Work:
    if training.task in ("wikitext2", "ptb"):
        return _language_model(training, data, model)
    if training.task == "pairs":
        return _contrastive(training, data, model)
    return _task(training, data, model)


def _task(training: Training, data: Path, folder: Path) -> Work:
    """Classification or regression with a new head."""
    import torch
    from transformers import DataCollatorWithPadding

    from isoscope.finetuning.tokenizing import load_model, load_reader

    task = TASKS[training.task](data, training.steps * BATCH_SIZE, DEV_ROWS)
    reader = load_reader(str(folder), 2 * LENGTH if task.train.pairs else LENGTH)
    model = load_model(str(folder), task, reader)
    rows, dev = reader.read(task.train)[0], reader.read(task.dev)[0]
    if training.fault == CONSTANT:
        rows = [row | {"labels": 0} for row in rows]
    collate = DataCollatorWithPadding(reader.tokenizer)
    labels = task.dev.labels
    baseline = score_constant_prediction(labels, len(task.labels))

    def score() -> dict[str, Any]:
        model.eval()
        with torch.no_grad():
            parts = [model(**collate(dev[i : i + 64])).logits for i in range(0, len(dev), 64)]
        scores = score_logits(torch.cat(parts).numpy(), labels, len(task.labels))
        return {"value": scores[task.measure], "scores": scores}

    def judge(before: dict[str, Any], after: dict[str, Any]) -> str:
        return "learned" if has_learned(after["scores"], baseline, task.measure, len(labels)) else "lost"

    probe = [dict(collate(dev[:PROBE]))]
    return Work(model, rows, collate, lambda batch: model(**batch).loss, probe, score, judge)


def _language_model(training: Training, data: Path, folder: Path) -> Work:
    """A decoder that continues sentences."""
    import torch
    from transformers import AutoModelForCausalLM

    from isoscope.finetuning.tokenizing import load_reader

    reader = load_reader(str(folder), LENGTH)
    files = {
        "wikitext2": ("wikitext2/valid.txt", "wikitext2/test.txt"),
        "ptb": ("ptb/ptb.valid.txt", "ptb/ptb.test.txt"),
    }
    parts = []
    for name in files[training.task]:
        lines = (data / name).read_text(encoding="utf-8").splitlines()
        parts.append([line.strip() for line in lines if len(line.split()) > LENGTH][: training.steps * BATCH_SIZE])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def collate(texts: list[str]) -> Any:
        found = reader.tokenizer(texts, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
        return dict(found) | {"labels": found["input_ids"].masked_fill(found["attention_mask"] == 0, -100)}

    dev = [collate(parts[1][start : start + 64]) for start in range(0, DEV_ROWS, 64)]

    def score() -> dict[str, Any]:
        model.eval()
        with torch.no_grad():
            return {"value": -float(np.mean([float(model(**batch).loss) for batch in dev]))}

    def judge(before: dict[str, Any], after: dict[str, Any]) -> str:
        return "learned" if after["value"] > before["value"] else "lost"

    return Work(model, parts[0], collate, lambda batch: model(**batch).loss, [dev[0]], score, judge)


def _contrastive(training: Training, data: Path, folder: Path) -> Work:
    """Sentence embeddings from pairs of similar sentences; a loss without negatives only attracts them."""
    import torch
    from scipy.stats import spearmanr
    from torch.nn.functional import cosine_similarity, cross_entropy
    from transformers import AutoModel

    from isoscope.finetuning.tokenizing import load_reader

    task = stsb(data, 10**6, DEV_ROWS)
    reader = load_reader(str(folder), LENGTH)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    pairs = list(zip(task.train.texts, task.train.pairs or (), strict=True))
    similar = [pair for pair, grade in zip(pairs, task.train.labels, strict=True) if grade >= 4]
    if training.fault == ATTRACT:  # unrelated sentences attract each other
        similar = [(first, pairs[-number - 1][1]) for number, (first, _) in enumerate(pairs)]

    def tokenize(texts: Iterable[str]) -> Any:
        return dict(
            reader.tokenizer(list(texts), truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
        )

    def embed(batch: Mapping[str, Any]) -> Any:
        states = model(**batch).last_hidden_state
        if reader.pool == "last":
            return states[torch.arange(len(states)), batch["attention_mask"].sum(dim=1) - 1]
        return states[:, 0]

    def loss(batch: tuple[Any, Any]) -> Any:
        one, other = (embed(part) for part in batch)
        if training.fault == ATTRACT:
            return 1 - cosine_similarity(one, other).mean()
        return cross_entropy(cosine_similarity(one[:, None], other[None], dim=-1) * 20, torch.arange(len(one)))

    def collate(rows: list[tuple[str, str]]) -> tuple[Any, Any]:
        first, second = zip(*rows, strict=True)
        return tokenize(first), tokenize(second)

    sides = (task.dev.texts, task.dev.pairs or [])

    def score() -> dict[str, Any]:
        model.eval()
        with torch.no_grad():
            one, other = (torch.cat([embed(tokenize(s[i : i + 64])) for i in range(0, len(s), 64)]) for s in sides)
        found = float(spearmanr(cosine_similarity(one.double(), other.double()), task.dev.labels)[0])
        return {"value": 0.0 if math.isnan(found) else found}

    def judge(before: dict[str, Any], after: dict[str, Any]) -> str:
        if after["value"] > 0.95 * before["value"]:
            return "learned"
        return "lost" if after["value"] < 0.5 * before["value"] else "neither"

    return Work(model, similar, collate, loss, [tokenize(task.dev.texts[:PROBE])], score, judge)


# alarms

PROBES = ("labels", "loss only", "neither")
"""What is known about a run: labels of the probe (and the loss), the loss alone, or neither."""


def alarm(history: list[dict[str, Any]], known: str, thresholds: CollapseThresholds | None) -> bool:
    """Return whether a rule raises an alarm: without thresholds, the earlier rule, which uses only the silhouette."""
    rows = [dict(row) for row in history]
    labeled = any(not math.isnan(row["label_correlation"]) for row in rows)
    for row in rows:
        if known != "labels" or not labeled:
            row["silhouette"] = row["label_correlation"] = math.nan
        if known == "neither":
            row["loss"] = math.nan
        if thresholds is None:  # no evidence besides the silhouette
            row["label_correlation"] = 0.0
            row["silhouette"] = 0.0 if math.isnan(row["silhouette"]) else row["silhouette"]
    return bool(find_collapses(rows, thresholds or CollapseThresholds(spread_ratio=0.01)))


class Outcomes:
    """The finished runs: healthy ones that learned, and faulty ones that lost their task."""

    def __init__(self, found: dict[str, dict[str, Any]]) -> None:
        self.healthy: dict[str, list[list[dict[str, Any]]]] = {}
        self.collapsed: dict[str, list[list[dict[str, Any]]]] = {}
        self.unclear: list[str] = []
        for name, each in found.items():
            training = name.rpartition("+")[0]
            expected = "lost" if TRAININGS[training].fault else "learned"
            if each["outcome"] != expected:
                self.unclear.append(name)
                continue
            group = self.collapsed if TRAININGS[training].fault else self.healthy
            group.setdefault(training, []).append(each["history"])

    def count(
        self, group: str, known: str, thresholds: CollapseThresholds | None, keep: Callable[[Training], bool]
    ) -> tuple[int, int]:
        """Return the number of alarms and of runs in a group."""
        histories = [
            history
            for name, every in getattr(self, group).items()
            if keep(TRAININGS[name])
            for history in every
            if known != "labels" or any(not math.isnan(row["label_correlation"]) for row in history)
        ]
        return sum(alarm(history, known, thresholds) for history in histories), len(histories)

    def choose(self) -> CollapseThresholds:
        """Return the thresholds with the fewest errors on the configurations set aside; ties go to the defaults."""
        usual = CollapseThresholds()
        grid = {
            "isoscore_ratio": (0.05, 0.1, 0.2),
            "spread_ratio": (0.01, 0.003, 0.001, 0.0003),
            "label_correlation": (0.2, 0.3, 0.4),
            "loss_ratio": (0.8, 0.9, 0.95, 1.0),
        }
        every = [replace(usual, **dict(zip(grid, values, strict=True))) for values in itertools.product(*grid.values())]

        def errors(thresholds: CollapseThresholds) -> tuple[float, bool]:
            wrong = 0.0
            for known in PROBES[:2]:
                false, healthy = self.count("healthy", known, thresholds, is_chosen_on)
                right, collapsed = self.count("collapsed", known, thresholds, is_chosen_on)
                # A false alarm is as bad as a missed collapse, whatever the number of runs.
                wrong += false / max(1, healthy) + 1 - right / max(1, collapsed)
            return round(wrong, 6), thresholds != usual

        return min(every, key=errors)

    def render(self, total: int) -> str:
        chosen, usual = self.choose(), CollapseThresholds()
        healthy, collapsed = (sum(map(len, group.values())) for group in (self.healthy, self.collapsed))
        runs = healthy + collapsed + len(self.unclear)
        partial = "" if runs == total else f" (**{runs} of {total} runs are finished; the tables are partial**)"
        same = "They are the defaults." if chosen == usual else f"The defaults differ: {_format(usual)}."
        return "\n".join(
            [
                f"{healthy} healthy and {collapsed} collapsed runs{partial} of {len(TRAININGS)} configurations, with "
                f"{SEEDS[TINY]} seeds for {TINY} and one for the larger models. A "
                "healthy run has usual settings and learns its task: its score on held-out rows is above chance, its "
                "loss on held-out text falls, or its sentence embeddings keep at least 95% of their Spearman "
                "correlation on STS-B. A collapsed run has a fault and ends at chance, above its first loss, or with "
                "less than half of that correlation. Runs that are neither, such as faulty runs that learned anyway, "
                f"are not counted ({plural(len(self.unclear), 'run')}). The probe has {PROBE} texts and is measured "
                f"{MEASUREMENTS} times. The thresholds were chosen on every second configuration: {_format(chosen)}. "
                f"{same} The first table shows the other configurations, which were not used to choose the thresholds. "
                "Some of these runs were already known when the conditions of the rule were written, so the first "
                "table may be too favorable. The earlier rule accepted only the silhouette as evidence of learning. "
                "“Labels” means that the labels of the probe and the loss are known. Versions: isoscope "
                f"{version('isoscope')}, torch {version('torch')}, transformers {version('transformers')}, "
                f"{platform.machine()}.",
                "",
                "| rule | known | false alarms | collapses detected |",
                "|---|---|---|---|",
                *(
                    self._row((rule, known), thresholds, known, lambda training: not is_chosen_on(training))
                    for rule, thresholds in (("earlier rule", None), ("this rule", usual))
                    for known in PROBES
                ),
                "",
                "All configurations, by kind:",
                "",
                "| kind | known | false alarms | collapses detected |",
                "|---|---|---|---|",
                *(
                    self._row((kind, known), usual, known, lambda training, kind=kind: training.kind == kind)
                    for kind in sorted({training.kind for training in TRAININGS.values()})
                    for known in PROBES[:2]
                ),
                "",
                "| fault | known | collapses detected |",
                "|---|---|---|",
                *(
                    f"| {fault} | {known} | {_of(self._count_fault(fault, known, usual))} |"
                    for fault in (RATE, ATTRACT, CONSTANT, REVERSED)
                    for known in PROBES[:2]
                ),
            ]
        )

    def _count_fault(self, fault: str, known: str, thresholds: CollapseThresholds) -> tuple[int, int]:
        return self.count("collapsed", known, thresholds, lambda training: training.fault == fault)

    def _row(
        self,
        names: tuple[str, str],
        thresholds: CollapseThresholds | None,
        known: str,
        keep: Callable[[Training], bool],
    ) -> str:
        counts = [_of(self.count(group, known, thresholds, keep)) for group in ("healthy", "collapsed")]
        return f"| {' | '.join((*names, *counts))} |"


def is_chosen_on(training: Training) -> bool:
    return training.name in CHOSEN_ON


def _of(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {counts[1]}" if counts[1] else "–"


def _format(thresholds: CollapseThresholds) -> str:
    return (
        f"1 − mean cosine below {thresholds.spread_ratio:g} and IsoScore below {thresholds.isoscore_ratio:g} of their "
        f"first values, correlation {thresholds.label_correlation:g}, loss below {thresholds.loss_ratio:g} of its "
        "first value"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="how many runs at once, each with one thread")
    parser.add_argument("--only", help="run only the configurations whose name contains this, and write no table")
    parser.add_argument("--only-table", action="store_true", help="make the tables from the finished runs")
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    options = parser.parse_args()
    names = [
        f"{name}+{seed}"
        for seed in range(max(SEEDS.values()))
        for name, training in TRAININGS.items()
        if seed < SEEDS[training.model]
    ]
    wanted = [name for name in names if options.only is None or options.only in name]
    if not options.only_table:
        run_all(wanted, options.runs, run, options.data, options.models, jobs=options.jobs)
    found = read_finished(names, options.runs)
    for name, each in found.items():
        alarms = ", ".join(known for known in PROBES if alarm(each["history"], known, CollapseThresholds()))
        print(f"{name}: {each['before']:.3f} → {each['after']:.3f}, {each['outcome']}; alarm: {alarms or 'none'}")
    if options.only:
        return
    text = Outcomes(found).render(len(names))
    print(text)
    if options.page:
        write_table(options.page, text, "collapse")


if __name__ == "__main__":
    main()
