"""The lowest versions that `make test-lowest` installs: read from pyproject.toml, for each extra and each Python."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "tools" / "lowest_versions.py"
PROJECT = """
[project]
name = "isoscope"
dependencies = [
  "numpy>=2.0",
  "numpy>=99.1; python_version >= '3.11'",
  "scipy>=99; python_version < '3.11'",
  "scipy>=1.13",
  "torch>=2.4",
]
[project.optional-dependencies]
plot = ["matplotlib>=3.9.2"]
server = ["Psycopg[binary]>=3.2.2,!=3.2.4", "IsoScore==2.0.1"]
test = ["isoscope[plot]", "scipy>=1.14"]
every = ["isoscope[test, server]"]
open = ["polars<2"]
"""

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="tools/lowest_versions.py is not in this distribution")


def run(root, *extras):
    return subprocess.run([sys.executable, root / "tools" / TOOL.name, *extras], capture_output=True, text=True)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / TOOL.name).write_text(TOOL.read_text())
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "constraints.txt").write_text("# the CPU build\ntorch==2.13.0\nmatplotlib<4  # not pinned\n")
    return tmp_path


@pytest.mark.parametrize(
    ("extras", "expected"),
    [
        ([], ["numpy==99.1", "scipy==1.13"]),
        (["plot"], ["matplotlib==3.9.2", "numpy==99.1", "scipy==1.13"]),
        (["test"], ["matplotlib==3.9.2", "numpy==99.1", "scipy==1.14"]),
        (["every"], ["isoscore==2.0.1", "matplotlib==3.9.2", "numpy==99.1", "psycopg==3.2.2", "scipy==1.14"]),
    ],
)
def test_lowest_versions_of_extras_on_this_python(root, extras, expected):
    done = run(root, *extras)
    assert done.stdout.splitlines() == expected, done.stderr


def test_a_requirement_without_a_lower_bound_is_refused(root):
    done = run(root, "open")
    assert done.returncode == 1
    assert "polars<2" in done.stderr
    assert "polars>=VERSION" in done.stderr


def test_an_unknown_extra_is_refused(root):
    done = run(root, "plots")
    assert done.returncode == 2
    assert "no extra plots" in done.stderr
    assert "plot, server" in done.stderr


def test_every_requirement_of_the_project_has_a_lower_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    done = run(ROOT, *(each for each in project["optional-dependencies"] if each != "bench"))
    assert done.returncode == 0, done.stderr
    assert {"numpy", "h5py", "sentence-transformers"} <= {line.partition("==")[0] for line in done.stdout.splitlines()}
