"""finetune: the table and the files, one line for every error, and resuming an interrupted run."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("transformers")

from isoscope.cli.main import main
from isoscope.finetuning.settings import DEFAULT_WEIGHTS
from tests.finetuning import toy

QUICK = ["--epochs", "2", "--batch-size", "16", "--learning-rate", "3e-3", "--probe", "24"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetune")
    toy.encoder(folder / "encoder")
    toy.write_glue(folder / "data")
    lines = [f"{text}\t{'good' if label else 'bad'}\n" for text, label in zip(*toy.opinions(120), strict=True)]
    (folder / "mood.tsv").write_text("review\tmood\n" + "".join(lines), encoding="utf-8")
    with toy.one_thread():
        yield folder


@pytest.fixture
def here(place, tmp_path, monkeypatch):
    """A folder with links to the model and the data."""
    monkeypatch.chdir(tmp_path)
    for name in ("encoder", "data", "mood.tsv"):
        os.symlink(place / name, tmp_path / name)
    return tmp_path


@pytest.mark.filterwarnings("ignore:layer_. has collapsed")
def test_a_named_task_prints_a_table_and_writes_its_folder(here, capsys):
    words = ["--regularizer", "istar", "--weight", "-1", "--seeds", "0,2", "--limit", "64", "-o", "run"]
    assert main(["finetune", "encoder", "cola", "--data", "data", *words, *QUICK]) == 0
    captured = capsys.readouterr()
    assert "encoder on cola  regularizer istar -1; seeds 0, 2; 8 steps" in captured.out
    metrics = json.loads((here / "run" / "metrics.json").read_text(encoding="utf-8"))
    spread = metrics["final"]["matthews"]
    assert f"{spread['mean']:.3f} ± {spread['std']:.3f}" in captured.out
    for row in ("matthews", "accuracy", "f1", "anisotropy₁, centered", "IsoScore, unbiased", "mean cosine"):
        assert row in captured.out
    assert "64 of 96 rows" in captured.out
    said = " ".join(captured.out.split())
    assert re.search(r"Matthews correlation \S+ ± \S+ on the dev set of cola.* learned the task\.", said)
    assert metrics["baseline"]["matthews"] == 0
    assert len(metrics["learned"]) == 2
    assert captured.err.splitlines()[-2:] == ["written: run/metrics.json", "written: run/page.html"]
    assert metrics["seeds"] == [0, 2]
    assert (here / "run" / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_custom_files_and_json_on_standard_output(here, capsys):
    words = [
        "--train",
        "mood.tsv",
        "--text-column",
        "review",
        "--label-column",
        "mood",
        "--dev-share",
        "0.25",
        "--measure",
        "f1",
    ]
    assert main(["finetune", "encoder", *words, "-o", "run", "--json", "-", *QUICK]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["schema"] == "isoscope.finetuning/1"
    assert result["settings"]["dev_rows"] == 30
    assert result["measure"] == "f1"
    assert result["arm"] == "none"


WRONG = {
    "TASK or --train FILE": ["encoder", "-o", "run"],
    "--data": ["encoder", "cola", "-o", "run"],
    "--seeds one: need a number of seeds, such as 3": [
        "encoder",
        "cola",
        "--data",
        "data",
        "--seeds",
        "one",
        "-o",
        "run",
    ],
    "nowhere/model/": ["nowhere/model/", "cola", "--data", "data", "-o", "run"],
    "--regularizer is sparse: choose none, persistent-entropy, istar, unbiased or cosreg": [
        "encoder",
        "cola",
        "--data",
        "data",
        "--regularizer",
        "sparse",
        "-o",
        "run",
    ],
    "review, mood": [
        "encoder",
        "mood.tsv",
        "--label-column",
        "mood",
        "-o",
        "run",
    ],
    "finetune needs --output DIR": ["encoder", "cola"],
}


@pytest.mark.parametrize("words", WRONG)
def test_bad_input_prints_one_line_and_exits_with_2(words, here, capsys):
    assert main(["finetune", *WRONG[words]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert not (here / "run").exists()


@pytest.mark.parametrize("words", ["3", "3,", "a,b", "3,-1", "0,1"])
def test_invalid_repair_option_prints_one_line(words, tmp_path, capsys):
    assert (
        main(["finetune", "model", "cola", "--data", str(tmp_path), "-o", str(tmp_path / "run"), "--repair", words])
        == 2
    )
    printed = capsys.readouterr().err
    assert "need two integers" in printed or "n_clusters is 0" in printed
    assert printed.count("\n") == 1


def test_ctrl_c_says_how_to_resume(here, capsys):
    words = ["finetune", "encoder", "cola", "--data", "data", "-o", "the run", *QUICK, "--epochs", "400"]
    command = [sys.executable, "-m", "isoscope", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    with subprocess.Popen(command, text=True, **pipes) as running:
        while not list((here / "the run").glob("seed-0/checkpoint-*/trainer_state.json")):
            if running.poll() is not None:
                pytest.fail(running.communicate()[1])
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=600)
    assert running.returncode == 130
    assert out == ""
    assert (
        err == "isoscope: interrupted; finished work is kept in the run; "
        f"to resume, run: {shlex.join(['isoscope', *words])}\n"
    )
    assert main([*words[:-1], "300"]) == 2


def test_help_names_the_default_weights(capsys):
    assert main(["finetune", "--help"]) == 0
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    shown = re.search(r"--weight .*?\(default: (.*?)\)", text)[1]
    named = {name: float(weight) for weight, name in re.findall(r"([\d.]+) for (\w+)", shown)}
    assert {name: named.get(name, named["others"]) for name in DEFAULT_WEIGHTS} == DEFAULT_WEIGHTS
