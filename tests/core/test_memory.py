"""Memory limits: how they are parsed, what they plan, and what they reject."""

import itertools
import warnings

import numpy as np
import pytest

import isoscope
from isoscope import DataWarning, InputError, memory_limit
from isoscope._core.memory import batch_bytes, check_memory, limit_sample_size, parse_size, tile_bytes
from isoscope._core.threads import set_max_threads, thread_count
from isoscope.auditing.measure import Settings
from isoscope.stores.store import default_rows

MB = 10**6


@pytest.fixture
def cloud(tmp_path):
    rows = np.random.default_rng(5).standard_normal((4500, 32)).astype(np.float32) + 0.5
    np.save(tmp_path / "cloud.npy", rows)
    return tmp_path / "cloud.npy"


def test_no_limit_keeps_the_defaults():
    check_memory(10**6)
    assert batch_bytes(123) == tile_bytes(123) == 123
    assert limit_sample_size(10**9, 10**6) == 10**9
    set_max_threads(None)
    before = default_rows(128), thread_count()
    with memory_limit("1GB"):
        check_memory(2048)
    assert (default_rows(128), thread_count()) == before


def test_more_memory_never_reduces_sizes():
    budgets = []
    for size in range(300, 4000, 100):
        with memory_limit(size * MB), warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            budgets.append((default_rows(256), tile_bytes(2**40), limit_sample_size(10**12, 256)))
    assert all(a <= b for few, more in itertools.pairwise(budgets) for a, b in zip(few, more, strict=True))
    assert budgets[0][0] < default_rows(256) == budgets[-1][0]


@pytest.mark.parametrize("dim", [2, 128, 768, 3072])
@pytest.mark.parametrize("groups", [1, 24])
def test_the_minimum_in_the_error_message_suffices_and_less_does_not(dim, groups):
    with pytest.raises(InputError, match="need at least") as refused, memory_limit("10MB"):
        check_memory(dim, groups)
    least = parse_size(str(refused.value).split("need at least ")[1])
    with memory_limit(least):
        check_memory(dim, groups)
        with pytest.warns(DataWarning, match="reduces the sample"):
            assert limit_sample_size(20_000, dim, groups=groups) >= 1000
    with pytest.raises(InputError, match=f"too small for d = {dim}"), memory_limit(int(0.9 * least)):
        check_memory(dim, groups)


def test_wide_vectors_use_fewer_threads_with_little_memory():
    set_max_threads(None)
    usual = thread_count()
    with memory_limit("1.6GB"):
        check_memory(3072)
        assert thread_count() == 1
        assert len(list(isoscope._core.threads.map_in_threads(abs, range(5), 5))) == 5
    assert thread_count() == usual


def test_limits_can_be_nested():
    with memory_limit("2GB"):
        outer = default_rows(1024)
        with memory_limit("400MB"):
            assert default_rows(1024) < outer
        assert default_rows(1024) == outer
        with pytest.raises(InputError, match="need a size such as 2GB"), memory_limit("plenty"):
            pass
        assert default_rows(1024) == outer


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9),
        ("2 gb", 2 * 10**9),
        ("500MB", 500 * MB),
        ("1.5GiB", 3 * 2**29),
        ("1.5gib", 3 * 2**29),
        ("64k", 64_000),
        ("1T", 10**12),
        ("12345", 12345),
        (12345, 12345),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-2GB", "2 XB", "two", "1e9", True, None, "2iB", "nan", "2GB 3"])
def test_an_invalid_size_is_rejected(text):
    with pytest.raises(InputError, match=r"need a size such as 2GB, 500MB or 1\.5GiB, or a number of bytes"):
        parse_size(text)


@pytest.mark.heavy
def test_an_audit_has_the_same_sums_and_warns_of_its_smaller_sample(cloud):
    usual = isoscope.audit(cloud, sample=4400)
    reduced = r"215MB reduces the sample from 4,400 to [\d,]+ rows"
    with memory_limit("215MB"), pytest.warns(DataWarning, match=reduced):
        small = isoscope.audit(cloud, sample=4400)
    assert small["mean_cosine"].value == pytest.approx(usual["mean_cosine"].value, rel=1e-12)
    assert small.settings.sample < usual.settings.sample == 4400
    assert small["hubness"].rows == small.settings.sample
    with memory_limit("3GB"):
        assert Settings().limit_sample(isoscope.open_store(cloud)) == Settings()


def test_repairs_are_fitted_to_a_smaller_sample(cloud):
    with memory_limit("215MB"):
        with pytest.warns(DataWarning, match="reduces the sample"):
            isoscope.ClusterCenter(3, random_state=0).fit(cloud)
        limited = isoscope.Center().fit(cloud)
    np.testing.assert_allclose(limited.mean_, isoscope.Center().fit(cloud).mean_, rtol=1e-12)


def test_a_limit_that_is_too_small_is_rejected_before_reading(tmp_path):
    (tmp_path / "wide.npy").write_bytes(b"")
    with (tmp_path / "wide.npy").open("wb") as file:
        about = {"descr": "<f4", "fortran_order": False, "shape": (10**6, 20_000)}
        np.lib.format.write_array_header_1_0(file, about)
        file.truncate(80 * 10**9 + 4096)  # a hole: reading it would take minutes
    store = isoscope.open_store(tmp_path / "wide.npy")
    for work in (isoscope.audit, isoscope.sketch, isoscope.Center().fit, isoscope.advise):
        with pytest.raises(InputError, match=r"too small for d = 20000: need at least [\d.]+GB"), memory_limit("2GB"):
            work(store)


def test_the_end_of_an_inner_limit_raises_nothing():
    with pytest.raises(KeyError), memory_limit("10MB"), memory_limit("1GB"):
        raise KeyError("mine")  # an outer limit that is too small must not replace it
