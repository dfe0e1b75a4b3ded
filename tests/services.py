"""Services that tests need: without one, tests skip on a developer's machine and fail in continuous integration."""

from __future__ import annotations

import importlib
import os
from typing import Any, NoReturn

import pytest

STARTUP_SECONDS = 180
"""The time within which a service must start. Starts take a few seconds, and a minute on a very busy machine."""


def lack(reason: str) -> NoReturn:
    """Skip a test or module whose service is missing; fail if the environment variable CI is "true"."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; continuous integration (CI=true) requires it", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def require(package: str) -> Any:
    """Return an imported package of a required service."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        lack(f"{package} cannot be imported ({error})")
