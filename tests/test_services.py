"""Missing services skip tests, fail in continuous integration, and are listed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.services import lack, require
from tests.stores.databases.conftest import find_closed_folder


def test_a_missing_service_skips_or_fails(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no_such_package cannot be imported"):
        require("no_such_package")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"no server; continuous integration \(CI=true\) requires it"):
        lack("no server")
    assert require("os") is os


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="the server runs as the same user")
def test_a_folder_that_the_server_cannot_enter_is_named():
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed
        Path(place).chmod(0o755)
        home = Path(place).resolve() / "home"
        path = home / "environment" / "bin"
        path.mkdir(parents=True)
        if closed := find_closed_folder(path):
            pytest.skip(f"other users cannot enter {closed}, which contains the temporary files")
        home.chmod(0o700)
        assert find_closed_folder(path) == home


def test_skipped_tests_are_listed_by_reason(tmp_path):
    code = "import pytest\n@pytest.mark.parametrize('i', range(3))\ndef test_a(i): pytest.skip('no <server>')\n"
    code += "@pytest.mark.skip(reason='too slow')\ndef test_b(): pass\ndef test_c(): pass\n"
    (tmp_path / "test_skipping.py").write_text(code)
    (tmp_path / "conftest.py").write_text((Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    assert "    3  no <server>\n    1  too slow\n" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("1 passed, 4 skipped")
