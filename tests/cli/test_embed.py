"""embed: messages and files, one line for every error, and resuming an interrupted run."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("transformers")

import isoscope
from isoscope.cli.main import main
from tests.finetuning import toy


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return toy.encoder(tmp_path_factory.mktemp("models") / "encoder")


@pytest.fixture
def here(model, tmp_path, monkeypatch):
    """An empty folder that has the model and some texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoder").symlink_to(model)
    texts, labels = toy.opinions(20)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n\n" for text in texts))
    rows = "".join(f'"{text}",{label}\n' for text, label in zip(texts, labels, strict=True))
    (tmp_path / "texts.csv").write_text("prompt,mood\n" + rows)
    with toy.one_thread():
        yield tmp_path


def test_reports_inputs_and_outputs(here, capsys):
    assert main(["embed", "encoder", "texts.txt", "-o", "states", "--pool", "tokens", "--layers", "0,-1"]) == 0
    captured = capsys.readouterr()
    noted = json.loads((here / "states" / "_embedding.json").read_text())
    assert captured.out == f"states: 2 layers of {noted['rows']:,} vectors, 32 dimensions\n"
    assert "39 texts" in captured.err
    assert "19 texts have no tokens, so they have no row: text 2, text 4, text 6, …" in captured.err
    assert "Next: isoscope audit states --by layer" in captured.err
    assert sorted(path.name for path in (here / "states").glob("*.arrow")) == [
        "layer-00-00000.arrow",
        "layer-02-00000.arrow",
    ]
    assert main(["embed", "encoder", "texts.txt", "-o", "states", "--pool", "tokens", "--layers", "0,2"]) == 0
    assert "states is already complete" in capsys.readouterr().err


def test_output_can_be_audited(here, capsys):
    options = ["--pool", "mean", "--columns", "text=prompt,labels=mood", "--dtype", "float16", "--layers", "-1"]
    assert main(["embed", "encoder", "texts.csv", "-o", "states", *options]) == 0
    assert main(["audit", "states", "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert "Next: isoscope audit states --html report.html" in captured.err  # one layer, so no --by
    first, _, rest = captured.out.partition("\n")
    assert first == "states: 20 vectors, 32 dimensions"
    found = json.loads(rest)
    assert found["columns"] == {"labels": "mood", "text": "prompt"}
    assert found["source"]["dtype"] == "float16"


def test_an_audit_treats_the_tokens_of_a_text_as_dependent(here, capsys):
    assert main(["embed", "encoder", "texts.txt", "-o", "states", "--pool", "tokens", "--layers", "-1"]) == 0
    capsys.readouterr()
    assert main(["audit", "states", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"]["groups"] == "document"
    (isoscore,) = (finding for finding in found["findings"] if finding["name"] == "isoscore")
    assert "assumes independent groups of rows (20 values of document)" in isoscore["meaning"]
    states = isoscope.open_store(here / "states")
    documents = states.column("groups")
    expected = isoscope.isoscore(np.concatenate(list(states)), unbiased=True, groups=documents)
    assert isoscore["details"]["unbiased"] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["encoder", "none.txt"], "none.txt"),
        (["nowhere/", "texts.txt"], "nowhere/"),
        (["encoder", "texts.csv"], "texts"),
        (["encoder", "texts.txt", "--layers", "first"], '--layers first: need "all"'),
        (["encoder", "texts.txt", "--layers", "7"], "layer is 7"),
        (["encoder", "texts.txt", "--columns", "types=x"], "only text=, labels= and ids="),
        (["encoder", "texts.txt", "--pool", "sentence-transformers"], "modules.json"),
        (["encoder", "texts.txt", "--window", "1"], "special tokens"),
    ],
)
def test_bad_input_prints_one_line_and_writes_nothing(here, capsys, words, message):
    assert main(["embed", *words, "-o", "states"]) == 2
    lines = capsys.readouterr().err.strip().split("\n")
    assert message in lines[-1]
    assert not (here / "states").exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("lancedb:store#b", "lancedb:store#b is a database, but embed writes only files and folders"),
        ("postgresql://me:secret@localhost/db?table=t", "isoscope convert"),
        ("qdrant:https://localhost:6333#docs?api_key=secret", "isoscope convert"),
        ("mongodb://me:secret@localhost/db", "mongodb://… is not supported"),
    ],
)
def test_database_as_output_raises_and_writes_nothing(here, capsys, output, message):
    before = sorted(here.iterdir())
    assert main(["embed", "encoder", "texts.txt", "-o", output]) == 2
    line = capsys.readouterr().err.strip()
    assert message in line
    assert "\n" not in line
    assert "secret" not in line
    assert sorted(here.iterdir()) == before


def test_ctrl_c_keeps_finished_work_and_says_how_to_resume(here, capsys):
    slow = (
        "import sys; from isoscope.embedding import run as running, shards; from isoscope.cli.main import main\n"
        "from isoscope.cli.session import interrupted\n"
        "running._BLOCK_TOKENS, running._BLOCK_BYTES = (20, 30), 1\n"
        "put = shards.ShardWriter.commit\n"
        "def stop(self, parts): put(self, parts); print('done', flush=True); interrupted.wait()\n"
        "shards.ShardWriter.commit = stop\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", slow, "embed", "encoder", "texts.txt", "-o", "states", "--pool", "tokens"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "done\n"
        run.send_signal(signal.SIGINT)
        _, printed = run.communicate(timeout=600)
    assert run.returncode == 130
    assert "interrupted; finished work is kept in states; to resume, run: isoscope embed encoder" in printed
    assert not json.loads((here / "states" / "_embedding.json").read_text())["finished"]
    assert not (here / "states" / "_texts").exists()
    assert main(["audit", "states"]) == 0
    lines = capsys.readouterr().err.strip().split("\n")
    assert len(lines) == 2
    assert "contains 3 layers: auditing each layer" in lines.pop(0)
    assert lines[0].startswith("isoscope: states is incomplete")


def test_a_file_with_vectors_of_other_texts_is_not_replaced(here, capsys):
    command = ["embed", "encoder", "texts.csv", "--columns", "text=prompt", "-o", "states.parquet"]
    assert main(command) == 0
    assert main(command) == 0  # the same run replaces its own output
    before = (here / "states.parquet").read_bytes()
    (here / "other.txt").write_text((here / "texts.txt").read_text().splitlines()[0])
    other = ["embed", "encoder", "other.txt", "-o", "states.parquet"]
    assert main(other) == 2
    assert "replace it with --restart" in capsys.readouterr().err
    assert (here / "states.parquet").read_bytes() == before
    assert [path.name for path in here.glob(".*")] == []
    assert main([*other, "--restart"]) == 0
    np.save(here / "mine.npy", np.ones(3))
    (here / "mine.npy").rename(here / "mine.parquet")
    assert main([*other[:-1], "mine.parquet"]) == 2
    assert "is not an output of isoscope embed" in capsys.readouterr().err
