"""The mutation check: which changes it makes, which tests it runs, and what kills a mutant."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

TOOLS = Path(__file__).parents[1] / "tools"
pytestmark = pytest.mark.skipif(not TOOLS.exists(), reason="tools/ is not in this distribution")


@pytest.fixture
def mutators(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    import mutators

    return mutators


@pytest.fixture
def mutants(mutators):
    import mutants

    return mutants


def changes(mutators, source):
    return [mutant.change for mutant in mutators.Finder("src/isoscope/toy.py", source.encode()).find()]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a >= b", ["x = a > b"]),
        ("x = a < b != c", ["x = a <= b != c", "x = a < b == c"]),
        ("x = a and b or c", ["x = a or b or c", "x = a and b and c"]),
        ("x = (a) + (b - c)", ["x = (a) - (b - c)", "x = (a) + (b + c)"]),
        ("x = a * b // c", ["x = a // b // c", "x = a * b * c"]),
        ("x += a", ["x -= a"]),
        ("x = 'ä' if not a else b", ["x = 'ä' if  a else b", "x = 'ä' if not (not a) else b"]),
        ("x = -7, 0", ["x = -8, 0", "x = -7, 1"]),
        ("x = 0.25, 0.0, 1e-9", ["x = 0.3, 0.0, 1e-9", "x = 0.25, 1.0, 1e-9", "x = 0.25, 0.0, 1.2e-09"]),
        ("if a: x()\nelse: y()", ["if not (a): x()"]),
        ("def f(): return a", ["def f(): return None"]),
        ("def f() -> int: return a", ["def f() -> int: return 1"]),
        ("def f() -> bool: return False", ["def f() -> bool: return True"]),
    ],
)
def test_a_mutant_changes_one_place(mutators, before, after):
    first = before.split("\n")[0]
    assert changes(mutators, before) == [f"{first} → {line}" for line in after]


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Return 1 + 1."""',
        "raise ValueError(a + 1)",
        "warnings.warn(message, stacklevel=2)",
        "x = f'{a + 1:.2f}'",
        "x = 'a' + b",
        "x: Literal[1]",
        "def f(x: Literal[1]) -> Literal[1]: pass",
        "def __repr__(self): return a + 1",
        "if TYPE_CHECKING:\n    x = 1",
        "_TILE_BYTES = 2**20",
        "_ROWS, _PAGE_BYTES = 1, 2",
        "x = a is None, a in b, a / b, a**b, a % b, True, None",
        "x = (a  # 1 + 1\n     + b)",
    ],
)
def test_texts_annotations_and_tuning_constants_do_not_change(mutators, source):
    assert changes(mutators, source) == []


def test_all_mutants_of_a_module_compile(mutators):
    path = TOOLS.parent / "src" / "isoscope" / "_core" / "arrays.py"
    found = mutators.Finder("arrays.py", path.read_bytes()).find()
    assert len({mutant.source for mutant in found}) == len(found) > 50
    for mutant in found:
        compile(mutant.source, mutant.path, "exec")


@pytest.mark.heavy
def test_mutants_are_spread_by_code_lines(mutants):
    chosen = mutants.choose(mutants.ROOT, 60, 0, ["stores", "_io"])
    counts = {name: sum(mutants.package_of(mutant.path) == name for mutant in chosen) for name in ("stores", "_io")}
    assert sum(counts.values()) == len({(mutant.path, mutant.line) for mutant in chosen}) == 60
    assert counts["stores"] > 4 * counts["_io"] > 8
    assert mutants.choose(mutants.ROOT, 60, 0, ["stores", "_io"]) == chosen
    assert len({mutant.path for mutant in chosen}) > 20
    assert len({*mutants.choose(mutants.ROOT, 60, 1, ["stores", "_io"])} & {*chosen}) < 20
    with pytest.raises(SystemExit, match="no package io"):
        mutants.choose(mutants.ROOT, 60, 0, ["io"])


def test_lines_of_the_same_text_are_chosen_independently(mutants, toy):
    module = toy / "src" / "isoscope" / "_core" / "toy.py"
    module.write_text("x = a + b\n" * 50 + "".join(f"x = a + b{i}\n" for i in range(50)))
    lines = [mutant.line for mutant in mutants.choose(toy, 40, 0, [])]
    assert 10 < sum(line <= 50 for line in lines) < 30


@pytest.mark.heavy
def test_the_closest_tests_run_first(mutants):
    closest, package, users = mutants.mirrors(mutants.ROOT, "src/isoscope/_io/tables.py")
    assert "tests/io/test_tables.py" in closest
    assert "tests/io/test_lines.py" in package
    assert "tests/finetuning/test_task_data.py" in users
    closest, subpackage, package = mutants.mirrors(mutants.ROOT, "src/isoscope/stores/databases/postgres_copy.py")
    assert closest == ["tests/stores/databases/test_postgres_copy.py"]
    assert "tests/stores/databases/test_chroma.py" in subpackage
    assert "tests/stores/test_arrow.py" in package
    assert mutants.mirrors(mutants.ROOT, "src/isoscope/metrics/cosine.py")[0][0] == "src/isoscope/metrics/cosine.py"
    assert "tests/auditing/test_type_cosines.py" in mutants.mirrors(mutants.ROOT, "src/isoscope/_core/kernels.py")[-1]
    assert "tests/test_package.py" in mutants.mirrors(mutants.ROOT, "src/isoscope/_lazy.py")[-1]


TOY = {
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n",
    "src/isoscope/__init__.py": "",
    "src/isoscope/_core/__init__.py": "",
    "src/isoscope/_core/toy.py": """
def compare(a, b):
    if a < b:
        return "less"
    return "more"


def count_down(n, step):
    while n:
        n -= step
    print(n)


def join(a, b):
    joined = a + b
    print(joined)
""",
    "tests/core/test_toy.py": """
from isoscope._core.toy import compare, join


def test_toy(capsys):
    assert compare(1, 2) == "less" and compare(2, 1) == "more"
    join(1, 2)
    assert capsys.readouterr().out == "3\\n"
""",
    "tests/core/test_other.py": """
from isoscope._core import toy


def test_other():
    toy.count_down(6, 2)
""",
}


@pytest.fixture
def toy(tmp_path):
    """A checkout with three mutants: one survives, one never ends, one fails a test."""
    root = tmp_path / "toy"
    for name, text in TOY.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def run(mutants, toy, minutes=10.0):
    """Return the outcome of each mutant of the toy."""
    found = mutants.choose(toy, 3, 0, [])
    results = mutants.Results(toy, toy.parent / "results.jsonl")
    mutants.run_mutants(found, results, 2, minutes)
    return {mutant.change.split(" → ")[1]: results.get(mutant) for mutant in found}, mutants.report(found, results)


@pytest.mark.heavy
def test_a_failed_test_and_a_hang_kill_a_mutant(mutants, toy, monkeypatch, capsys):
    monkeypatch.setattr(mutants, "TEST_SECONDS", 10)
    outcomes, code = run(mutants, toy)
    assert {change: outcome["killed"] for change, outcome in outcomes.items()} == {
        "if a <= b:": False,
        "n += step": True,
        "joined = a - b": True,
    }
    assert code == 1
    assert outcomes["joined = a - b"]["reason"] == "tests/core/test_toy.py::test_toy fails"
    assert outcomes["n += step"]["files"] == ["tests/core/test_other.py"]
    shown = capsys.readouterr().out
    assert "src/isoscope/_core/toy.py:3: if a < b: → if a <= b: (all tests pass)" in shown.partition("package")[2]
    assert "2 of 3 mutants killed (66.7%)" in shown
    assert {name: (toy / name).read_text() for name in TOY} == TOY

    with (toy / "tests" / "core" / "test_other.py").open("a") as file:
        file.write("\n\ndef test_edge():\n    assert toy.compare(1, 1) == 'more'\n")
    outcomes, code = run(mutants, toy)
    assert {outcome["killed"] for outcome in outcomes.values()} == {True}
    assert code == 0
    progress = capsys.readouterr().out.partition("package")[0]
    assert "joined" not in progress  # its test has not changed
    assert "if a <= b: (tests/core/test_other.py::test_edge fails)" in progress


@pytest.mark.heavy
def test_a_hang_outside_python_is_ended_with_all_processes(mutants, toy, monkeypatch):
    monkeypatch.setattr(mutants, "SILENT_SECONDS", 30)
    pid = toy.parent / "pid"
    (toy / "tests" / "core" / "test_other.py").write_text(f"""
import signal, subprocess
from isoscope._core import toy

def test_other():
    signal.signal(signal.SIGALRM, signal.SIG_IGN)  # like compiled code, which no signal interrupts
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    open({str(pid)!r}, "w").write(str(process.pid))
    toy.count_down(6, 2)
""")
    outcomes, _ = run(mutants, toy)
    assert outcomes["n += step"] | {"reason": "a test hangs", "killed": True} == outcomes["n += step"]
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(int(pid.read_text())).status() == psutil.STATUS_ZOMBIE


@pytest.mark.heavy
def test_a_test_that_always_fails_kills_nothing(mutants, toy, capsys):
    (toy / "tests" / "core" / "test_other.py").write_text(
        "import isoscope._core.toy\n\ndef test_other():\n    assert 0\n"
    )
    outcomes, code = run(mutants, toy)
    assert [change for change, outcome in outcomes.items() if outcome["killed"]] == ["joined = a - b"]
    assert code == 1
    assert "fails without a mutant: tests/core/test_other.py::test_other\n" in capsys.readouterr().out


@pytest.mark.heavy
def test_tests_that_cannot_run_end_the_check(mutants, toy):
    (toy / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--no-such-option'\n")
    with pytest.raises(SystemExit, match=r"pytest tests/core/test_other.py .* exits with 4 without a mutant"):
        run(mutants, toy)


@pytest.mark.heavy
def test_no_mutant_starts_after_the_time_limit(mutants, toy, capsys):
    outcomes, code = run(mutants, toy, minutes=0)
    assert set(outcomes.values()) == {None}
    assert code == 2
    assert "3 mutants were not run" in capsys.readouterr().out


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_check_leaves_nothing_behind(toy, tmp_path, number):
    shutil.copytree(TOOLS, toy / "tools")
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, toy / "tools" / "mutants.py", "--count", "3"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": environment}
    options["preexec_fn"] = lambda: signal.signal(number, signal.SIG_DFL)  # a shell or nohup may have it ignored
    with subprocess.Popen(command, **options) as process:
        process.stdout.readline()  # the first outcome; the mutant that never ends is running
        process.send_signal(number)
        process.wait(600)
    assert process.returncode == (-number if number == signal.SIGINT else 128 + number)
    assert not list((tmp_path / "tmp").iterdir())
    assert len((toy / "out" / "mutants.jsonl").read_text().splitlines()) in (1, 2)
