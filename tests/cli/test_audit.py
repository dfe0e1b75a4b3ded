"""The exit code of `isoscope audit --fail-on`, and rejected sources."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isoscope.cli.main import main


@pytest.fixture
def topics(tmp_path):
    """Return an isotropic space with a column `topic` that is unrelated to the vectors."""
    rng = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal((600, 16)).ravel()), 16)
    path = tmp_path / "topics.parquet"
    pq.write_table(pa.table({"embedding": vectors, "topic": rng.integers(0, 5, 600), "layer": [0, 1] * 300}), path)
    return path


def test_a_guessed_column_does_not_decide_the_exit_code(topics, tmp_path, capsys):
    command = ["audit", str(topics), "--fail-on", "bad", "--json", str(tmp_path / "a.json")]
    assert main(command) == 0
    assert "--fail-on ignores findings on columns" in (message := capsys.readouterr().err)
    assert "--columns labels=topic" in message
    assert main([*command, "--by", "layer"]) == 0
    assert "labels=topic" in capsys.readouterr().err
    assert main([*command, "--columns", "labels=topic"]) == 1
    assert "ignores" not in capsys.readouterr().err
    np.save(tmp_path / "labels.npy", np.arange(600) % 3)
    assert main([*command, "--labels", str(tmp_path / "labels.npy")]) == 1


def test_a_guessed_column_that_got_worse_does_not_decide_the_exit_code(topics, tmp_path, capsys):
    table = pq.read_table(topics)
    vectors = np.stack(table["embedding"].to_pylist())
    own = (vectors[:, 0] > 0).astype(int)
    pq.write_table(table.set_column(1, "topic", [own]), tmp_path / "before.parquet")
    saved = str(tmp_path / "before.json")
    assert main(["audit", str(tmp_path / "before.parquet"), "--json", saved]) == 0
    command = ["audit", str(topics), "--baseline", saved, "--fail-on", "worse"]
    assert main(command) == 0
    assert main([*command, "--columns", "labels=topic"]) == 1


@pytest.mark.parametrize("command", [["audit", ""], ["similarity", "", "0.5"], ["convert", "", "a.npy"]])
def test_an_empty_source_is_refused_in_one_line(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("b.npy", np.eye(100))
    assert main(command) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_messages_about_columns_name_the_problem(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    columns = {"key": [f"k{i}" for i in range(60)], "one": ["a"] * 60, "grp": ["a", "b"] * 30}
    pq.write_table(pa.table({"vector": list(X), **columns}), "v.parquet")
    assert main(["audit", "v.parquet", "--labels", "vector"]) == 2
    assert "column vector holds the vectors, so it cannot be used for labels" in capsys.readouterr().err
    assert main(["audit", "v.parquet", "--labels", "one"]) == 0
    assert "--labels one is not used: all rows have the same label" in capsys.readouterr().err
    assert main(["audit", "v.parquet", "--by", "key"]) == 2
    assert "groups can be measured: v.parquet, key k0 has 1 vector" in capsys.readouterr().err
    assert main(["audit", "v.parquet", "--by", "grp"]) == 0
    assert "both groups of grp" in " ".join(capsys.readouterr().out.split())
    Path("plain.txt").write_text("This is a sentence.\nThis is another.\n")
    assert main(["audit", "plain.txt"]) == 2
    assert "to embed texts, use isoscope embed" in capsys.readouterr().err
