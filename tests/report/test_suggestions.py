"""The commands that follow from the findings of an audit."""

import re

import numpy as np

import isoscope
from isoscope._report.suggestions import suggest_commands


def test_suggested_metric_is_accepted_by_an_audit(rng):
    rows = rng.standard_normal((300, 8)) * np.exp(rng.standard_normal((300, 1)))
    for metric in ("cosine", "euclidean"):
        found = isoscope.audit(rows, metric=metric)
        commands = [each.command for commands in suggest_commands(found) for each in commands]
        others = re.findall(r"metric='(\w+)'", " ".join(commands))
        assert len(others) == 1
        assert others != [metric]
        assert isoscope.audit(rows, metric=others[0]).settings.metric == others[0]


def test_commands_read_the_columns_of_the_audit(rng):
    rows = np.repeat(rng.standard_normal((30, 8)), 10, axis=0)
    found = isoscope.audit(rows, labels=np.arange(300) % 3)
    assert "repeats" in [cause.name for cause in found.causes]
    found.source = "p.parquet"

    def listing(**columns):
        found.columns = columns
        commands = [each.command for commands in suggest_commands(found) for each in commands]
        return next(command for command in commands if "--top" in command)

    assert listing(labels="grp") == "isoscope audit p.parquet --labels grp --top 20"
    assert listing(labels="label", text="title") == "isoscope audit p.parquet --top 20"
    assert listing(text="line", ids="no") == "isoscope audit p.parquet --columns text=line,ids=no --top 20"


def test_suggested_output_is_a_file_that_can_be_written(rng):
    found = isoscope.audit(rng.standard_normal((300, 8)) + 3)
    for source, output in (("x.npy", "center.npy"), ("words.txt", "center.parquet"), ("x.csv.gz", "center.parquet")):
        found.source = source
        commands = [each.command for commands in suggest_commands(found) for each in commands]
        assert any(f"-o {output} " in command for command in commands), source
