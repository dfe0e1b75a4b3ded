"""Options that several commands share: names of outputs, and roles of columns."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

import isoscope
from isoscope.cli.main import app, main
from isoscope.cli.options import parse_columns
from isoscope.errors import ParameterError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with vectors, a saved repair and texts."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    np.save("a.npy", X)
    isoscope.Center().fit(X).save("repair")
    Path("texts.txt").write_text("one\ntwo\n")
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


OUTPUTS = {
    "convert": ["convert", "a.npy", "{}.npy"],
    "apply": ["apply", "repair", "a.npy", "-o", "{}.npy"],
    "apply to a folder": ["apply", "repair", "a.npy", "-o", "{}"],
    "fix": ["fix", "center", "a.npy", "-o", "{}.npy"],
    "fix --html": ["fix", "center", "a.npy", "-o", "b.npy", "--html", "{}"],
    "fix --save": ["fix", "center", "a.npy", "-o", "b.npy", "--save", "{}"],
    "fit": ["fit", "center", "a.npy", "-o", "{}"],
    "sketch": ["sketch", "a.npy", "-o", "{}"],
    "audit --html": ["audit", "a.npy", "--html", "{}"],
    "audit --json": ["audit", "a.npy", "--json", "{}"],
    "demo": ["demo", "--html", "{}"],
    "embed": ["embed", "model", "texts.txt", "-o", "{}.parquet"],
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("command", OUTPUTS)
def test_output_to_a_pipe_without_a_reader_is_rejected(command, folder, capsys):
    words = [word.format("out") for word in OUTPUTS[command]]
    pipe = next(word for word in words if word.startswith("out"))
    os.mkfifo(pipe)
    before = names(folder)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert pipe in err
    assert err.count("\n") == 1
    assert names(folder) == before


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")
def test_output_to_a_socket_or_device_is_rejected(folder, capsys):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.npy")
        assert main(["convert", "a.npy", "s.npy"]) == 2
        assert main(["audit", "a.npy", "--html", os.devnull]) == 2
    assert capsys.readouterr().err.count("is a pipe, a device or a socket") == 2


@pytest.mark.parametrize("command", [each for each in OUTPUTS if each != "audit --json"])
def test_only_json_is_written_to_standard_output(command, folder, capsys):
    before = names(folder)
    words = ["-" if word.startswith("{}") else word for word in OUTPUTS[command]]
    assert main(words) == 2
    assert "only --json writes to standard output" in capsys.readouterr().err
    assert names(folder) == before


@pytest.mark.parametrize("words", [["convert", "a.npy", ""], ["apply", "repair", "a.npy", "-o", ""]])
def test_empty_name_of_an_output_is_rejected(words, folder, capsys):
    assert main(words) == 2
    assert "the name of the output is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "save"), [("x", "x"), ("o.npy", "o.npy"), ("x", "x/repair"), ("x/y", "x"), ("lancedb:x#t", "x")]
)
def test_output_and_saved_repair_do_not_overlap(output, save, folder, capsys):
    before = names(folder)
    assert main(["fix", "center", "a.npy", "-o", output, "--save", save]) == 2
    assert f"the folder of the repair, {save}, overlap" in capsys.readouterr().err
    assert names(folder) == before


@pytest.mark.parametrize(("name", "default"), [("seed", 0), ("sample", 20_000), ("folds", 5)])
def test_commands_share_the_defaults_of_the_functions(name, default):
    """`fit` and `fix` pass None on, so that the repair uses its own default."""
    commands = typer.main.get_command(app).commands.items()
    found = {command: each.default for command, of in commands for each in of.params if each.name == name}
    assert "advise" in found
    assert {value for command, value in found.items() if command not in ("fit", "fix")} == {default}


def test_role_cannot_be_given_twice():
    with pytest.raises(ParameterError, match="labels to both label and grp"):
        parse_columns(["labels=label,labels=grp"])
    with pytest.raises(ParameterError, match="labels to both a and b"):
        parse_columns(["labels=a", "ids=i", "labels=b"])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
@pytest.mark.parametrize("command", [["audit", "a.npy", "--json", "j.json"], ["convert", "a.npy", "j.npy"]])
def test_full_standard_output_is_named(command, folder):
    with open("/dev/full", "w") as full:
        run = subprocess.run([sys.executable, "-m", "isoscope", *command], stdout=full, stderr=subprocess.PIPE)
    err = run.stderr.decode()
    assert run.returncode == 2
    assert "isoscope: standard output: No space left on device\n" in err
    assert "unchanged" not in err
    assert Path(command[-1]).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of file sizes")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["convert", "a.npy", "b.npy"], "/b.npy: File too large"),
        (["fit", "center", "a.npy", "-o", "b.npy"], "File too large"),  # safetensors does not name the file
    ],
)
def test_file_above_the_size_limit_is_one_line(command, message, folder):
    words = [sys.executable, "-m", "isoscope", *command]
    limit = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
    run = subprocess.run([sys.executable, "-c", limit + "os.execv(sys.argv[1], sys.argv[1:])", *words], stderr=-1)
    assert run.returncode == 2
    assert message in run.stderr.decode()
    assert "b.npy" not in names(folder)
