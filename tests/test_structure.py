"""The rules of CONTRIBUTING.md on modules: no import cycle, the import order, module names, documented names."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "structure.py"


@pytest.mark.skipif(not TOOL.exists(), reason="tools/structure.py is not in this distribution")
def test_the_structure_keeps_its_rules():
    done = subprocess.run([sys.executable, TOOL, "--check", "--no-walk"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
