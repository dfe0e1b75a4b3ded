"""A small made-up study whose arms compute sums, to test what all studies share."""

from __future__ import annotations

import math
import os
from typing import Any, ClassVar

import numpy as np

from isoscope._core.errors import InputError
from isoscope.studies.study import (
    Arm,
    Claim,
    Figure,
    Holds,
    Number,
    Outcome,
    Panel,
    Paper,
    Parameter,
    Published,
    Row,
    Scatter,
    Series,
    Study,
    Table,
    Value,
    Verdict,
)

PAPER = Published(
    Paper("On <counting>", "A. Author", 1999, "Journal of & Sums"),
    (Claim("grows", "Sums grow with the seed.", "§1"), Claim("odd", "Nothing is odd | even.", "§2")),
    {"sums": {("three", "sum"): Number("sums", "three", "sum", 3.5, 0.25, "Table 1", "")}},
    {"sums": "Sums"},
)


class Counting(Study):
    """Sums of random numbers."""

    name = "counting"
    about = "Numbers are drawn and added up."
    models = ("someone/a-model",)
    quick_models = ("someone/a-small-model",)
    parameters: ClassVar = {
        "tasks": Parameter(("three", "four"), ("three",), "how many", widens=True),
        "seeds": Parameter((0, 1, 2), (0,), "of the draws", widens=True),
        "scale": Parameter(1.0, 0.5, "of the numbers"),
        "fail_at": Parameter("", "", "the arm that fails"),
        "end_at": Parameter("", "", "the arm whose process is killed"),
    }
    ran: ClassVar[list[str]] = []

    @property
    def published(self) -> Published:
        """The claims and numbers of a made-up paper."""
        return PAPER

    def data_sets(self, setting: Any) -> tuple[str, ...]:
        """No data, or a small dataset."""
        return ("cola",) if setting.data.folder is not None else ()

    def arms(self, setting: Any) -> list[Arm]:
        """An arm that computes a sum, for each task and seed."""

        def arm(task: str, seed: int) -> Arm:
            key = f"{task}/seed-{seed}"

            def run(bench: Any) -> dict[str, Any]:
                bench.tell(0.5, "half")
                if setting["fail_at"] == key:
                    (bench.folder / "left").write_text("half")
                    raise InputError(f"{key} fails")
                if setting["end_at"] == key:
                    os.kill(os.getpid(), 9)
                self.ran.append(key)
                count = {"three": 3, "four": 4}[task]
                draws = np.random.default_rng(seed).uniform(0.5, 1.5, count) * setting["scale"]
                found = {"sum": float(draws.sum()), "unknown": math.nan, "found": (bench.folder / "left").exists()}
                return found | {"by_place": {i: float(each) for i, each in enumerate(draws)}}

            return Arm(key, f"{task}, seed {seed}", run)

        return [arm(task, seed) for seed in setting["seeds"] for task in setting["tasks"]]

    def outcome(self, setting: Any, results: Any) -> Outcome:
        """Return a table, a figure of each kind, and a verdict on each claim."""
        sums = {
            task: [r["sum"] for key, r in results.items() if key.startswith(f"{task}/")] for task in setting["tasks"]
        }
        rows = [
            Row(task, {"sum": Value.of(found)}, {"sum": PAPER.tables["sums"]["three", "sum"]}, "abacus")
            for task, found in sums.items()
            if found
        ]
        lines = [
            Series(task, list(range(len(found))), found, [v - 0.1 for v in found], [v + 0.1 for v in found])
            for task, found in sums.items()
        ]
        first = next(iter(sums.values()))
        dots = [Series("dots", list(range(len(first))), first, dots=True), Series("one", [0], [1.0], dashed=True)]
        points = np.random.default_rng(0).standard_normal((30, 3)).tolist()
        colors = {"kind": ["a", "b", "<c>"] * 10, "size": [float(i) for i in range(30)]}
        return Outcome(
            [Table("sums", "Sums", ("sum", "none"), rows, where="Table 1", note="A note.", row_name="task")],
            [
                Figure(
                    "lines",
                    "Lines",
                    "By seed.",
                    [Panel("sums", lines, "seed", "sum"), Panel("dots", dots, "seed", "", log_y=True)],
                ),
                Figure("cloud of (my) model", "Cloud", "Points.", [Scatter("points", points, colors)], where="Fig. 1"),
            ],
            [
                Verdict(PAPER.claim("grows"), "3.5", "3 <or> so", Holds.yes),
                Verdict(PAPER.claim("odd"), "", "", Holds.untested, "nothing was odd"),
            ],
            ["The abacus was another."],
        )
