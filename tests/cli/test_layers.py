"""Commands on hidden states of several layers: one layer at a time, chosen with --layer or announced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import isoscope
from isoscope.cli.main import main
from tests.cli.test_audit_layers import TEXTS, write_states


@pytest.fixture
def states(tmp_path, rng, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_states("states.parquet", rng, [0, 6, 12])


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "center", "states.parquet", "-o", "out"],
        ["fix", "center", "states.parquet", "-o", "out.parquet"],
        ["similarity", "states.parquet", "0.5"],
        ["sketch", "states.parquet"],
        ["apply", "repair", "states.parquet", "-o", "out.parquet"],
    ],
    ids=lambda words: words[0],
)
def test_commands_for_one_space_need_a_layer(states, capsys, command):
    assert main(["fit", "center", "states.parquet", "--layer", "-1", "-o", "repair"]) == 0
    assert f"fitted to {TEXTS} vectors" in capsys.readouterr().out
    assert main(command) == 2
    assert "contains 3 layers, which are different spaces: choose one with --layer" in capsys.readouterr().err
    assert main([*command, "--layer", "6"]) == 0


def test_written_layers_have_the_rows_of_that_layer(states, capsys):
    X = isoscope.open_store(states).take(np.arange(3 * TEXTS))
    assert main(["convert", "states.parquet", "one.parquet", "--layer", "6"]) == 0
    np.testing.assert_array_equal(isoscope.open_store("one.parquet").take(np.arange(TEXTS)), X[TEXTS : 2 * TEXTS])
    assert main(["convert", "states.parquet", "all.npy"]) == 0
    assert len(np.load("all.npy")) == 3 * TEXTS
    main(["fit", "center", "one.parquet", "-o", "repair"])
    assert main(["apply", "repair", "states.parquet", "--layer", "6", "-o", "folder"]) == 0
    repaired = isoscope.open_store("folder").take(np.arange(TEXTS))
    np.testing.assert_allclose(repaired.mean(axis=0), 0, atol=1e-6)
    assert main(["audit", "states.parquet", "--layer", "6", "--json", "a.json"]) == 0
    assert json.loads(Path("a.json").read_text())["source"]["rows"] == TEXTS


def test_advise_takes_the_last_layer_and_says_so(states, capsys):
    assert main(["advise", "states.parquet", "--labels", "label", "--json", "last.json"]) == 0
    assert "The last of 3 layers (layer 12) is used" in capsys.readouterr().out
    content = json.loads(Path("last.json").read_text())
    assert content["settings"]["layer"] == 12
    assert content["source"] == {"name": "states.parquet", "rows": TEXTS, "dimensions": 12}
    assert content["task"]["examples"] == TEXTS  # one example per text, not one per text and layer
    assert main(["advise", "states.parquet", "--labels", "label", "--layer", "0", "--json", "first.json"]) == 0
    assert "layer" not in capsys.readouterr().out.replace("layer 0", "")
    assert main(["advise", "states.parquet", "--layer", "5"]) == 2
    assert "no layer 5" in capsys.readouterr().err
