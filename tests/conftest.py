"""Fixtures that all tests share: array libraries, datasets, the papers' vectors and a tolerance."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from isoscope._core.threads import thread_count
from tests.blas import limit_blas

limit_blas()

VECTORS = Path(__file__).parent / "vectors"

# Shells start background jobs with Ctrl-C ignored, and commands that the tests start would inherit this.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SEED = int(os.environ.get("ISOSCOPE_TEST_SEED", "20240917"))
"""The seed of the fixture `rng`. `make test-nightly` runs the tests that use it with other seeds."""

# The first call of a kernel compiles it, so examples have no deadline.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.register_profile("isoscope", UNHURRIED, max_examples=25, derandomize=True)
settings.register_profile("nightly", UNHURRIED, max_examples=300, derandomize=False, print_blob=True)
settings.load_profile("isoscope")

DTYPES = ["float32", "float64"]

_SERVERS = {"client": ("tests/engines/", "tests/cli/test_engines.py"), "postgres": ("tests/",)}
"""Fixtures that start servers, and the tests that use them."""

_SLOW = tuple(
    f"tests/{name}"
    for name in (
        "test_out_of_core.py",
        "test_notebooks.py",
        "finetuning/test_finetune.py",
        "report/test_accessibility.py",
        "engines/",
        "test_examples.py",
        "training/",
        "embedding/",
        "studies/",
        "losses/test_gathering.py",
    )
)
"""Files whose tests run first, so that no worker is busy with them after the others have finished."""

_BATCH = 25
"""Tests that pytest-xdist sends to a worker at once. If it sent each test alone, workers would wait between tests."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order and group the tests for pytest-xdist, and mark the tests that use `rng`."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SLOW))
    ungrouped: Counter[str] = Counter()
    for item in items:
        if "rng" in getattr(item, "fixturenames", ()):
            item.add_marker("seeded")
        if item.get_closest_marker("xdist_group") is None:
            file = item.nodeid.partition("::")[0]
            group = _find_shared(item, file)
            if group is None:
                group = f"{file} {ungrouped[file] // _BATCH}"
                ungrouped[file] += 1
            item.add_marker(pytest.mark.xdist_group(group))


def _find_shared(item: pytest.Item, file: str) -> str | None:
    """Return the server that a test uses, else its file if it uses a fixture that is created once per file."""
    for server, places in _SERVERS.items():
        if server in getattr(item, "fixturenames", ()) and item.nodeid.startswith(places):
            return server
    used = getattr(item, "_fixtureinfo", None)
    if used is None or all(each[-1].scope != "module" for each in used.name2fixturedefs.values()):
        return None
    return file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let the run continue after tests that end their worker."""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.scheduling import Scheduler

    return Scheduler(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remove the group that pytest-xdist appends to the names of tests, so that printed names can be run."""
    worker = getattr(report, "node", None)  # only the controller sets it
    if worker is not None and worker.config.option.dist == "loadgroup":
        report.nodeid = report.nodeid.rpartition("@")[0]


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_disks() -> Iterator[None]:
    """Do not flush files to disk: no test cuts the power, and a slow disk would slow down all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def pytest_collection_finish() -> None:
    """Exempt all modules and collected tests from garbage collection, whose full passes would visit them every time."""
    gc.collect()
    gc.freeze()


def tolerance(dtype: Any) -> float:
    """The largest allowed relative error, 4·√eps, compared with a float64 reference."""
    return 4 * float(np.sqrt(np.finfo(np.dtype(dtype)).eps))


def memory_for(rows: int) -> int:
    """A `max_memory` that gives float64 blocks of this many rows on any number of cores."""
    return 2 * 8 * thread_count() * rows**2


class Library(NamedTuple):
    """An array library: functions that create its arrays and read their values."""

    name: str
    array: Any
    values: Any

    def __repr__(self) -> str:
        return self.name


def pytest_configure(config: pytest.Config) -> None:
    """Keep what jax compiles for the next run, as numba does: jax compiles each operation for each shape."""
    cache = getattr(config, "cache", None)
    if cache is not None and find_spec("jax"):
        import jax

        jax.config.update("jax_compilation_cache_dir", str(cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _libraries() -> list[Any]:
    def numpy_values(x: Any) -> np.ndarray:
        return np.asarray(x, dtype=np.float64)

    def missing(name: str) -> Any:
        return pytest.param(None, marks=pytest.mark.skip(reason=f"{name} is not installed"), id=name)

    found = [Library(f"numpy-{d}", lambda x, d=d: np.asarray(x, d), numpy_values) for d in DTYPES]
    try:
        import array_api_strict

        found.append(Library("strict-float64", lambda x: array_api_strict.asarray(np.asarray(x, float)), numpy_values))
    except ImportError:
        found.append(missing("array-api-strict"))
    try:
        import torch

        def torch_values(x: Any) -> np.ndarray:
            return x.detach().double().numpy()

        for d in DTYPES:
            dtype = getattr(torch, d)
            found.append(Library(f"torch-{d}", lambda x, t=dtype: torch.tensor(np.asarray(x), dtype=t), torch_values))
    except ImportError:
        found.append(missing("torch"))
    try:
        import jax.numpy as jnp

        found.append(Library("jax-float32", lambda x: jnp.asarray(np.asarray(x, np.float32)), numpy_values))
    except ImportError:
        found.append(missing("jax"))
    return found


@pytest.fixture(params=_libraries(), ids=repr)
def library(request: pytest.FixtureRequest) -> Library:
    """Each array library and precision in turn."""
    return request.param


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


CLOUDS = {
    "ball": lambda rng: rng.standard_normal((120, 12)),
    "cone": lambda rng: rng.standard_normal((120, 12)) + 3,
    "power_law": lambda rng: rng.standard_normal((150, 16)) / np.arange(1, 17) ** 0.75,
    "far": lambda rng: rng.standard_normal((120, 12)) + 1e4,
    "wide": lambda rng: rng.standard_normal((20, 70)),
    "plane": lambda rng: rng.standard_normal((100, 2)),
}


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest, rng: np.random.Generator) -> np.ndarray:
    """Clouds of several shapes, in float64."""
    return CLOUDS[request.param](rng)


# clouds of n rows in d dimensions whose close pairs lose their digits if distances are not taken with care
HARD = {
    "far": lambda n, d, rng: rng.standard_normal((n, d)) + 1e4,
    "near duplicates": lambda n, d, rng: (
        np.repeat(rng.standard_normal((n // 2, d)), 2, axis=0) + 1e-5 * rng.standard_normal((n, d))
    ),
    "tight beside wide": lambda n, d, rng: np.concatenate(
        [1e-5 * rng.standard_normal((n // 2, d)), 100 + rng.standard_normal((n - n // 2, d))]
    ),
}


@pytest.fixture
def vectors() -> Any:
    """`vectors("cai")` gives the arrays and the scalars that the paper's own code produced."""

    def load(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        with np.load(VECTORS / f"{name}.npz") as arrays:
            return dict(arrays), json.loads((VECTORS / f"{name}.json").read_text())

    return load


def rotation(d: int, rng: np.random.Generator) -> np.ndarray:
    """A random rotation."""
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def assert_any_memory_will_do(metric: Any, X: np.ndarray, **near: float) -> None:
    """Check that memory layout does not change the value, and that X is not modified."""
    expected, kept = metric(X), X.copy()
    X.flags.writeable = False
    spread = np.zeros((2 * X.shape[0], 3 * X.shape[1]))
    spread[::2, ::3] = X
    for same in (X, np.asfortranarray(X), spread[::2, ::3], X[::-1].copy()[::-1]):
        assert metric(same) == pytest.approx(expected, **near)
    assert np.array_equal(X, kept)
