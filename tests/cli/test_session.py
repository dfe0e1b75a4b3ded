"""Terminal output without secrets and control characters in any encoding, and interruptions of commands."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from isoscope.cli.main import main
from tests.core.test_printable import HOSTILE, PW, SPELLINGS

POSITIONS = {
    "source": ["audit", "{}"],
    "second source": ["audit", "{rows}", "{}"],
    "queries": ["audit", "{rows}", "--queries", "{}"],
    "labels": ["audit", "{rows}", "--labels", "{}"],
    "baseline": ["audit", "{rows}", "--baseline", "{}"],
    "page": ["audit", "{rows}", "--html", "{}/x/y.html"],
    "columns": ["audit", "{rows}", "--columns", "{}"],
    "metric": ["audit", "{rows}", "--metric", "{}"],
    "sample": ["audit", "{rows}", "--sample", "{}"],
    "scheduler": ["sketch", "{rows}", "--engine", "local", "--scheduler", "{}"],
    "memory": ["sketch", "{rows}", "--max-memory", "{}"],
    "cosine": ["similarity", "{rows}", "{}"],
    "target": ["convert", "{rows}", "{}/x/y.npy"],
    "target without extension": ["convert", "{rows}", "{}"],
    "method": ["fit", "{}", "{rows}", "-o", "r"],
    "repair": ["apply", "{}", "{rows}", "-o", "x.npy"],
    "judgments": ["advise", "{rows}", "--queries", "{rows}", "--qrels", "{}"],
    "label column": ["advise", "{rows}", "--labels", "{}"],
    "option": ["audit", "{rows}", "--api-key={}"],
    "command": ["{}"],
    "study": ["study", "show", "{}"],
    "setting": ["study", "run", "shrink-the-longest", "-o", "run", "--set", "{}"],
}


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(0).standard_normal((60, 4)))
    return "rows.npy"


@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS)
def test_no_command_prints_a_mistyped_secret(position, rows, capsys):
    for spelling in [*SPELLINGS, f"postgres://me:my {PW}@host/db", f"host=db password=my {PW} dbname=x"]:
        for debug in ([], ["--debug"]) if spelling == SPELLINGS[0] else ([],):
            arguments = [each.replace("{rows}", rows).replace("{}", spelling) for each in position]
            assert main([*debug, *arguments]) == 2, spelling
            out, err = capsys.readouterr()
            assert PW not in out + err, spelling
            assert err.startswith(("isoscope: ", "Traceback")), spelling
    assert not [each for each in os.listdir() if PW in each]


def test_control_characters_in_names_and_values_are_escaped(tmp_path, capsys, monkeypatch):
    """Hostile text is in the file's name, in its columns, in the labels, in the groups and in the arguments."""
    monkeypatch.chdir(tmp_path)
    evil = "".join(each for each in HOSTILE if each != "\x00")
    X = np.random.default_rng(0).standard_normal((60, 4)).round(3)
    source = f"a{evil}.jsonl"
    with open(source, "w", encoding="utf-8", errors="surrogatepass") as file:
        for i, row in enumerate(X.tolist()):
            values = {"vector": row, f"label{evil}": f"{evil}{i % 2}", "text": f"{evil}{i}", "n": i % 2}
            file.write(json.dumps(values) + "\n")
    commands = [
        ["audit", source, "--columns", f"labels=label{evil}"],
        ["audit", source, "--by", f"label{evil}"],
        ["audit", source, source],
        ["audit", source, "--columns", f"labels=nosuch{evil}"],
        ["audit", source, "--columns", "vectors=nosuch"],
        ["audit", source, "--html", f"{evil}.html", "--json", f"{evil}.json"],
        ["audit", source, "--json", "-"],
        ["audit", f"nosuch{evil}"],
        ["audit", source, f"--{evil}"],
        ["similarity", source, "0.5"],
        ["sketch", source, "-o", f"{evil}.sketch"],
        ["convert", source, f"{evil}.parquet"],
        ["fit", "center", source, "-o", f"{evil}-repair"],
        ["apply", f"{evil}-repair", source, "-o", f"{evil}.npy"],
        ["advise", source, "--labels", f"label{evil}", "-o", f"{evil}-advised"],
        ["study", "show", evil],
    ]
    unsafe = set(HOSTILE) - {"\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\x90q\x9c"} | set("\x1b\x07\x9b\x90\x9c")
    for command in commands:
        main(command)
        out, err = capsys.readouterr()
        assert out + err
        assert not unsafe & set(out + err), command


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "utf-8"])
def test_any_encoding_of_standard_output(encoding, rows, monkeypatch, capfd):
    np.save("größe-中.npy", np.random.default_rng(0).standard_normal((60, 4)) + 3)

    def run(*arguments):
        out = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, "stdout", out)
        code = main([*arguments])
        out.flush()
        return code, out.buffer.getvalue().decode(encoding)

    code, table = run("audit", "größe-中.npy")
    assert code == 0
    assert ("✗ bad" if encoding == "utf-8" else "x bad") in table
    assert ("+ ok", "✓ ok")[encoding == "utf-8"] in table
    assert ("60 x 4" if encoding in ("ascii", "cp437") else "60 × 4") in table
    assert {"utf-8": "größe-中.npy", "ascii": "gr\\xf6\\xdfe-\\u4e2d.npy"}.get(encoding, "-\\u4e2d.npy") in table
    code, words = run("audit", "--help")
    assert code == 0
    assert ("SOURCE…" if encoding in ("utf-8", "cp1252") else "SOURCE...") in words
    code, saved = run("audit", "größe-中.npy", "--json", "-")
    assert code == 0
    assert json.loads(saved)["source"]["name"] == "größe-中.npy"
    assert run("audit", "中")[0] == 2


def test_ascii_terminal(rows):
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "isoscope", "study", "show", "shrink-the-longest"],
        capture_output=True,
        timeout=600,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


def test_closed_standard_output_is_not_an_error(rows):
    command = f"{sys.executable} -m isoscope convert {rows} copy.parquet >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, lambda *_: None])
@pytest.mark.parametrize("arguments", [["sketch", "rows.npy"], ["audit", "nosuch.npy"], ["--help"], ["interrupted"]])
def test_main_leaves_the_process_as_it_was(handler, arguments, rows, capsys, monkeypatch):
    from isoscope.cli import main as module

    if arguments == ["interrupted"]:
        monkeypatch.setattr(module, "run_command", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    found = [signal.signal(number, handler) for number in numbers]
    streams = sys.stdout, sys.stdout.errors, sys.stderr.errors, sys.unraisablehook
    try:
        main(arguments)
        assert [signal.getsignal(number) for number in numbers] == [handler] * 3
        assert (sys.stdout, sys.stdout.errors, sys.stderr.errors, sys.unraisablehook) == streams
    finally:
        for number, before in zip(numbers, found, strict=True):
            signal.signal(number, before)


def test_dask_leaves_the_signal_handlers_as_they_were(rows, capsys):
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    assert main(["sketch", rows, "--workers", "1"]) == 0
    assert [signal.getsignal(number) for number in numbers] == before


def test_nohup_keeps_a_command_running_after_a_hangup(rows, capsys, monkeypatch):
    from isoscope.cli import main as module

    def hang_up(parser, arguments):
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    monkeypatch.setattr(module, "run_command", hang_up)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert main(["audit"]) == 0
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert main(["audit"]) == 130
    finally:
        signal.signal(signal.SIGHUP, before)


INTERRUPTED_IMPORTS = ["typer", "isoscope.cli.main", "isoscope.cli.session", "isoscope.cli.audit"]
INTERRUPTED_IMPORTS += ["numpy", "numpy.linalg", "numba", "scipy", "rich.console"]


@pytest.mark.parametrize("module", INTERRUPTED_IMPORTS)
def test_ctrl_c_during_an_import_prints_one_line(module, rows, tmp_path):
    """The signal arrives while this module is being imported."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            sys.meta_path.remove(self)\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-m", "isoscope", "audit", rows], capture_output=True, text=True, timeout=600, env=environment
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("isoscope: interrupted")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "rows.npy"],
        ["convert", "rows.npy", "copy.parquet"],
        ["sketch", "rows.npy"],
        ["demo"],
        ["study", "list"],
    ],
)
def test_too_small_address_space_is_one_line(arguments, rows):
    done = run_with_address_space(300 * 2**20, arguments)
    assert done.returncode == 2
    assert "limited to 315 MB (ulimit -v)" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["advise", "rows.npy"], ["fit", "cluster-center", "rows.npy", "-o", "repair"]])
def test_kmeans_needs_a_larger_address_space(arguments, rows):
    """With less memory, scikit-learn's k-means never ends, or OpenBLAS ends the process with exit code 1."""
    done = run_with_address_space(968 * 2**20, arguments)
    assert done.returncode == 2
    assert "limited to 1015 MB (ulimit -v)" in done.stderr
    assert "at least 1100 MB" in done.stderr


def run_with_address_space(limit, arguments):
    import resource

    return subprocess.run(
        [sys.executable, "-m", "isoscope", *arguments],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libarrow.so: failed to map segment from shared object"),
        SystemError("error return without exception set"),
        RuntimeError("can't start new thread"),
    ],
)
def test_errors_of_libraries_without_memory(error, monkeypatch, capsys):
    from isoscope.cli import main as module

    def fail(parser, arguments):
        raise error

    monkeypatch.setattr(module, "run_command", fail)
    monkeypatch.setattr("isoscope.cli.invoke.address_space", lambda: 500 * 10**6)
    assert main(["audit"]) == 2
    assert "limited to 500 MB (ulimit -v)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("→ as it is  0.8", "> as it is  0.8"),
        ("  Center    0.8", "  Center    0.8"),
        ("Standardize → Center", "Standardize ->Center"),
        ("cosine ≥ 0.69  end", "cosine >=0.69  end"),
        ("         → Subtract the mean", "         > Subtract the mean"),
        ("0.512 ± 0.013", "0.512 +-0.013"),
        ("▲ −0.001 ×10", "^ -0.001 x10"),
    ],
)
def test_ascii_output_keeps_tables_aligned(text, plain):
    assert text.encode("ascii", "isoscope-ascii").decode() == plain
    assert len(plain) == len(text)


def test_ascii_intervals_are_as_wide_as_others(rows, monkeypatch):
    printed = {}
    for encoding in ("ascii", "utf-8"):
        out = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["audit", rows]) == 0
        out.flush()
        printed[encoding] = out.buffer.getvalue().decode(encoding).splitlines()
    assert "~" not in "".join(printed["ascii"])
    pairs = [(a, b) for a, b in zip(printed["ascii"], printed["utf-8"], strict=True) if " … " in b]
    assert pairs
    assert [(a, b) for a, b in pairs if len(a) != len(b) or "..." not in a] == []


def test_piped_output_has_no_blanks_at_the_ends_of_lines(rows, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["audit", rows]) == 0
    out.flush()
    lines = out.buffer.getvalue().decode().splitlines()
    assert len(lines) > 20
    assert [line for line in lines if line != line.rstrip()] == []
