"""Examples in docstrings and pages run in a folder of their own: what they write is gone afterwards."""

import pytest


@pytest.fixture(autouse=True)
def _own_folder(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))
