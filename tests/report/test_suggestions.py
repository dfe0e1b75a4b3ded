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
