"""--help: groups, summaries, examples that run, and options that mean the same in every command."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from enum import Enum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from isoscope.cli.help import COMMAND_GROUPS, read_examples, summarize_command
from isoscope.cli.main import app, main
from tests.finetuning import toy

PARSER = typer.main.get_command(app)
COMMANDS = {name: command for name, command in PARSER.commands.items() if name != "study"}
COMMANDS |= {f"study {name}": command for name, command in PARSER.commands["study"].commands.items()}


def list_options(name):
    """Return the declarations of an option in each command that has it."""
    found = {command: each for command, of in COMMANDS.items() for each in of.params if name in each.opts}
    assert found
    return found


def run_help(words, capsys, monkeypatch, width=80):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_command_has_a_group_and_a_summary_of_one_line(width, capsys, monkeypatch):
    lines = run_help([], capsys, monkeypatch, width).splitlines()
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == [*COMMAND_GROUPS, "Options", "Examples", "Exit codes"]
    for name, command in PARSER.commands.items():
        if width >= 80:
            assert any(line.split(maxsplit=1) == [name, summarize_command(command)] for line in lines), name
    assert [line.split()[0] for line in lines[-6:] if not line.startswith("    ")] == ["0", "1", "2", "3", "130"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_groups_and_examples_and_no_leaked_types(name, capsys, monkeypatch):
    text = run_help(name.split(), capsys, monkeypatch)
    command = COMMANDS[name]
    assert all(len(line) <= 80 for line in text.splitlines())
    for leak in ("<", "{", "list[", "None", "[default", "[required]"):
        assert leak not in text
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert parameter.rich_help_panel, parameter.opts
            assert parameter.is_flag or parameter.metavar, parameter.opts
            assert parameter.help.endswith("."), parameter.opts
    if name not in ("study list", "study show"):
        assert len(read_examples(command)) >= 2
    assert all(f"  {example}\n" in text for example in read_examples(command))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_every_choice(name):
    for parameter in COMMANDS[name].params:
        kind = next((each for each in _kinds(COMMANDS[name], parameter) if issubclass(each, Enum)), None)
        for choice in kind or ():
            assert choice.value in parameter.help, (parameter.opts, choice)


def _kinds(command, parameter):
    from typing import get_args, get_type_hints

    hint = get_type_hints(command.callback).get(parameter.name)
    return [each for each in (hint, *get_args(hint)) if isinstance(each, type)]


SHARED = ("--labels", "--columns", "--ids", "--text", "--queries", "--metric", "--html", "--json", "--seed", "--sample")
SHARED += (
    "--max-memory",
    "--pairs",
    "--qrels",
    "--query-ids",
    "--layer",
    "--missing",
    "--zeros",
    "--measure",
    "--schema",
)
SHARED += ("--engine", "--scheduler", "--workers", "--no-text", "--restart", "--vectors-only", "--folds", "--types")
OTHER_MEANING = {("finetune", "--layer"), ("finetune", "--measure")}
"""Options of `finetune` that concern a model in training and not a source of vectors."""


@pytest.mark.parametrize("option", SHARED)
def test_shared_options_are_declared_once(option):
    found = {name: each for name, each in list_options(option).items() if (name, option) not in OTHER_MEANING}
    assert len({(each.help, each.metavar, each.rich_help_panel, tuple(each.opts)) for each in found.values()}) == 1
    kinds = {frozenset(_kinds(COMMANDS[name], each)) - {type(None)} for name, each in found.items()}
    assert len(kinds) == 1


def test_output_is_always_the_main_result():
    for name, option in list_options("-o").items():
        assert set(option.opts) == {"--output", "-o"}, name
        assert option.help.startswith("Write the "), name
        assert option.rich_help_panel == "Output", name
        assert option.metavar == {"folder.": "DIR"}.get(option.help.split()[-1], option.metavar), name


@pytest.mark.parametrize("option", ["labels", "ids", "text", "types", "frequency"])
def test_role_options_take_a_column_or_a_file(option, rows, capsys):
    """Each option means the same as --columns ROLE=, whether it names a column or a file."""
    values = {"labels": "topic", "ids": "id", "text": "text", "types": "topic", "frequency": "count"}
    table = pq.read_table("vectors.parquet")
    name = values[option]
    Path("entries.txt").write_text("".join(f"{value}\n" for value in table[name].to_pylist()))
    results = []
    for words in (["--columns", f"{option}={name}"], [f"--{option}", name], [f"--{option}", "entries.txt"]):
        assert main(["audit", "vectors.parquet", *words]) == 0
        results.append(capsys.readouterr().out)
    assert results[0] == results[1] == results[2]
    assert main(["audit", "vectors.parquet", f"--{option}", name, "--columns", f"{option}={name}"]) == 2
    assert f"--{option} and --columns {option}= are both set" in capsys.readouterr().err
    assert main(["audit", "vectors.parquet", f"--{option}", "missing.txt"]) == 2
    assert "missing.txt does not exist" in capsys.readouterr().err


def test_labels_of_a_task_can_be_a_column_role(rows, capsys):
    saved = []
    for words in (["--labels", "topic"], ["--columns", "labels=topic"]):
        assert main(["threshold", "vectors.parquet", "--f1", *words]) == 0
        saved.append(capsys.readouterr().out)
    assert saved[0] == saved[1]


# examples


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the examples name: two classes of unit vectors with texts, ids, judgments and labels."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    topic = np.arange(240) % 4
    X = (rng.standard_normal((4, 12))[topic] + 0.4 * rng.standard_normal((240, 12)) + 0.5).astype(np.float32)
    for name in ("vectors", "old", "index"):
        np.save(folder / f"{name}.npy", X)
    np.save(folder / "new.npy", 2 * X)
    ids = np.arange(240)
    columns = {"vector": list(X), "topic": [f"topic {each}" for each in topic], "count": ids % 7 + 1}
    columns |= {"text": [f"text {i}" for i in range(240)], "id": [f"row {i}" for i in range(240)]}
    for name in ("vectors", "old", "new"):
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    np.save(folder / "corpus.npy", X)
    np.save(folder / "queries.npy", X[:60] + 0.1 * rng.standard_normal((60, 12)).astype(np.float32))
    judged = [(q, d) for q in range(60) for d in range(q % 4, 240, 4)]
    (folder / "qrels.tsv").write_text("query\tdoc\trelevance\n" + "".join(f"{q}\t{d}\t1\n" for q, d in judged))
    pairs = rng.integers(240, size=(300, 2))
    lines = [f"{a}\t{b}\t{int(topic[a] == topic[b])}\n" for a, b in pairs if a != b]
    (folder / "pairs.tsv").write_text("id1\tid2\tscore\n" + "".join(lines))
    return folder


@pytest.fixture
def rows(files, tmp_path, monkeypatch):
    """A folder with copies of the files."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)  # examples replace files
    return tmp_path


NEEDS_MODEL = ("embed", "finetune", "canary")
REPLACED = ("demo", "study run", "mcp")  # tested below: they take long, or wait for a client


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in (*REPLACED, *NEEDS_MODEL)])
def test_examples_run(name, rows, capsys):
    if name == "apply":
        assert main(["fit", "center", "vectors.npy", "-o", "repair"]) == 0
    for example in read_examples(COMMANDS[name]):
        code = main(shlex.split(example)[1:])
        assert code in ((0, 1) if name in ("threshold", "compress", "same") else (0,)), capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:layer_. has collapsed")
@pytest.mark.parametrize("name", NEEDS_MODEL)
def test_examples_with_a_model_run(name, rows, capsys):
    pytest.importorskip("transformers")
    toy.encoder(rows / "my-model")
    toy.write_glue(rows / "data", rows=32, dev_rows=16)
    texts, labels = toy.opinions(80)
    Path("texts.txt").write_text("".join(f"{text}\n" for text in texts))
    lines = [f"{i},{text},{label}\n" for i, (text, label) in enumerate(zip(texts, labels, strict=True))]
    Path("table.csv").write_text("key,body,stars\n" + "".join(lines))
    Path("reviews.csv").write_text("key,text,stars\n" + "".join(lines))
    with toy.one_thread():
        for i, example in enumerate(read_examples(COMMANDS[name])):
            words = [f"{word}-{i}" if word == "run" else word for word in shlex.split(example)[1:]]
            more = ["--epochs", "1"] if name == "finetune" else ["--restart"] if name == "embed" else []
            assert main([*words, *more]) == 0, capsys.readouterr().err


def test_examples_of_studies_are_parsed(rows, monkeypatch, capsys):
    calls = []

    def run_study(name, **options):
        calls.append((name, options["quick"]))
        raise KeyboardInterrupt

    monkeypatch.setattr("isoscope.studies.run.run_study", run_study)
    for example in read_examples(COMMANDS["study run"]):
        assert main(shlex.split(example)[1:]) == 130
    assert calls == [("shrink-the-longest", True), ("shrink-the-longest", False)]


def test_examples_of_the_server_run(rows):
    pytest.importorskip("mcp")
    (rows / "data").mkdir()
    for example in read_examples(COMMANDS["mcp"]):
        command = [sys.executable, "-m", *shlex.split(example)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
        assert done.returncode == 0, done.stderr


def test_examples_of_the_top_level_are_those_of_commands():
    known = {example for command in COMMANDS.values() for example in read_examples(command)}
    assert set(read_examples(PARSER)) <= known


# mistakes

MISTAKES = {
    "": "isoscope demo",
    "adit x.npy": "did you mean audit?",
    "audit": "audit needs SOURCE…, as in isoscope audit vectors.npy",
    "audit vectors.npy --htm x": "did you mean --html?",
    "audit vectors.npy --html": "--html needs a value: --html FILE",
    "audit vectors.npy --sample many": "--sample is many: need an integer",
    "audit vectors.npy --sample=many": "--sample is many: need an integer",
    "threshold vectors.npy --recall high": "--recall is high: need a number",
    "audit vectors.npy --metric dot": "--metric is dot: choose cosine or euclidean",
    "audit vectors.npy --no-text=1": "--no-text takes no value",
    "advise vectors.npy more.npy": "advise does not accept the extra argument more.npy",
    "fit center vectors.npy": "fit needs --output DIR, as in isoscope fit center",
    "study": "choose list, show or run",
    "study rum": "did you mean run?",
    "audit vectors.parq": "did you mean vectors.parquet",
    "audit .": "",
    "apply repair vectors.npy -o x.npy": "repair is not a folder",
    "same vectors.npy": "1 source was passed: pass OLD and NEW",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistake_prints_one_line_with_a_suggestion(line, rows, capsys):
    if line == "audit .":
        for path in rows.iterdir():
            path.unlink()
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("isoscope: ")
    assert err.count("\n") == 1
    assert MISTAKES[line] in err


# completion

WORDS = {
    "isoscope a": ["audit", "advise", "apply"],
    "isoscope audit --me": ["--metric"],
    "isoscope audit x.npy --metric e": ["euclidean"],
    "isoscope study sh": ["show"],
    "isoscope study show shr": ["shrink-the-longest"],
    "isoscope fit sta": ["standardize"],
    "isoscope audit vec": [],  # the shell completes file names
}


@pytest.mark.parametrize("line", WORDS)
def test_completion_of_commands_options_and_values(line, capsys, monkeypatch):
    monkeypatch.setenv("_ISOSCOPE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert main([]) == 0
    assert capsys.readouterr().out.split() == WORDS[line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(shell, capsys, monkeypatch):
    monkeypatch.setenv("_ISOSCOPE_COMPLETE", f"source_{shell}")
    assert main([]) == 0
    script = capsys.readouterr().out
    assert f"complete_{shell}" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, capture_output=True)


@pytest.mark.parametrize("command", ["", "audit", "study", "study run"])
def test_h_is_short_for_help(command, capsys):
    printed = []
    for option in ("-h", "--help"):
        assert main([*command.split(), option]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "Usage: isoscope" in printed[0]


@pytest.mark.parametrize("command", ["audit", "threshold"])
def test_options_that_are_hardly_similar_are_not_suggested(command, capsys):
    assert main([command, "a.npy", "--version"]) == 2
    assert "did you mean" not in capsys.readouterr().err
