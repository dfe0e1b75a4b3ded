"""A limit of memory: what it means, what follows it, what is refused."""

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


def test_without_a_limit_everything_is_as_usual():
    check_memory(10**6)
    assert batch_bytes(123) == tile_bytes(123) == 123
    assert limit_sample_size(10**9, 10**6) == 10**9
    set_max_threads(None)
    before = default_rows(128), thread_count()
    with memory_limit("1GB"):
        check_memory(2048)
    assert (default_rows(128), thread_count()) == before


def test_more_memory_never_gives_less():
    budgets = []
    for size in range(300, 4000, 100):
        with memory_limit(size * MB), warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            budgets.append((default_rows(256), tile_bytes(2**40), limit_sample_size(10**12, 256)))
    assert all(a <= b for few, more in itertools.pairwise(budgets) for a, b in zip(few, more, strict=True))
    assert budgets[0][0] < default_rows(256) == budgets[-1][0]


@pytest.mark.parametrize("dim", [2, 128, 768, 3072])
@pytest.mark.parametrize("clouds", [1, 24])
def test_the_least_that_is_said_does_and_less_does_not(dim, clouds):
    with pytest.raises(InputError, match=r"need .* at least") as refused, memory_limit("10MB"):
        check_memory(dim, clouds)
    least = parse_size(str(refused.value).split("need ")[1].split(" at least")[0])
    with memory_limit(least):
        check_memory(dim, clouds)
        with pytest.warns(DataWarning, match="hold a sample of"):
            assert limit_sample_size(20_000, dim, clouds=clouds) >= 1000
    with pytest.raises(InputError, match=f"too small for d = {dim}"), memory_limit(int(0.9 * least)):
        check_memory(dim, clouds)


def test_wide_vectors_have_fewer_threads_where_memory_is_short():
    set_max_threads(None)
    usual = thread_count()
    with memory_limit("1.6GB"):
        check_memory(3072)
        assert thread_count() == 1
        assert len(list(isoscope._core.threads.map_in_threads(abs, range(5), 5))) == 5
    assert thread_count() == usual


def test_limits_may_stand_inside_each_other():
    with memory_limit("2GB"):
        outer = default_rows(1024)
        with memory_limit("400MB"):
            assert default_rows(1024) < outer
        assert default_rows(1024) == outer
        with pytest.raises(InputError, match="need a size such as 2GB"), memory_limit("plenty"):
            pass
        assert default_rows(1024) == outer


@pytest.mark.parametrize(
    ("said", "size"),
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
def test_sizes(said, size):
    assert parse_size(said) == size


@pytest.mark.parametrize("said", ["", "GB", "-2GB", "2 XB", "two", "1e9", True, None, "2iB", "nan", "2GB 3"])
def test_what_is_no_size_is_refused(said):
    with pytest.raises(InputError, match=r"need a size such as 2GB, 500MB or 1\.5GiB, or a number of bytes"):
        parse_size(said)


@pytest.mark.heavy
def test_an_audit_measures_the_same_sums_and_says_that_its_sample_is_smaller(cloud):
    usual = isoscope.audit(cloud, sample=4400)
    said = r"215MB of memory hold a sample of [\d,]+ rows, not of 4,400"
    with memory_limit("215MB"), pytest.warns(DataWarning, match=said):
        small = isoscope.audit(cloud, sample=4400)
    assert small["mean_cosine"].value == pytest.approx(usual["mean_cosine"].value, rel=1e-12)
    assert small.settings.sample < usual.settings.sample == 4400
    assert small["hubness"].rows == small.settings.sample
    with memory_limit("3GB"):
        assert Settings().limit_sample(isoscope.open_store(cloud)) == Settings()


def test_repairs_learn_from_a_smaller_sample(cloud):
    with memory_limit("215MB"):
        with pytest.warns(DataWarning, match="hold a sample of"):
            isoscope.ClusterCenter(3, random_state=0).fit(cloud)
        limited = isoscope.Center().fit(cloud)
    np.testing.assert_allclose(limited.mean_, isoscope.Center().fit(cloud).mean_, rtol=1e-12)


def test_it_is_refused_before_a_row_is_read(tmp_path):
    (tmp_path / "wide.npy").write_bytes(b"")
    with (tmp_path / "wide.npy").open("wb") as file:
        about = {"descr": "<f4", "fortran_order": False, "shape": (10**6, 20_000)}
        np.lib.format.write_array_header_1_0(file, about)
        file.truncate(80 * 10**9 + 4096)  # a hole: reading it would take minutes
    store = isoscope.open_store(tmp_path / "wide.npy")
    for work in (isoscope.audit, isoscope.sketch, isoscope.Center().fit, isoscope.advise):
        with pytest.raises(InputError, match=r"too small for d = 20000: need [\d.]+GB at least"), memory_limit("2GB"):
            work(store)
