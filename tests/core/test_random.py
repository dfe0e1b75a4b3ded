import numpy as np
import pytest
from sklearn.cluster import KMeans

import isoscope
from isoscope._core.errors import ParameterError
from isoscope._core.random import check_seed, sklearn_seed


@pytest.mark.parametrize("seed", [0, 7, 2**31, 3_000_000_000, 2**64 + 5, np.int64(3), np.uint32(4)])
def test_integer_seeds_are_kept(seed):
    assert check_seed(seed) == int(seed)


def test_other_seeds_give_a_reproducible_integer():
    assert check_seed([1, 2]) == check_seed(np.random.SeedSequence([1, 2])) != check_seed([2, 1])
    assert check_seed(np.random.default_rng(5)) == check_seed(np.random.default_rng(5))
    assert check_seed(None) != check_seed(None)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, [-1], object()])
def test_invalid_seeds_raise(seed):
    with pytest.raises(ParameterError, match="seed is"):
        check_seed(seed)


def test_scikit_learn_accepts_any_seed():
    X = np.random.default_rng(0).standard_normal((20, 2))
    for seed in (3, 2**40):
        KMeans(2, n_init=1, random_state=sklearn_seed(seed)).fit(X)
    assert sklearn_seed(3) == 3


def test_audit_and_advise_accept_the_same_seeds():
    X = np.random.default_rng(0).standard_normal((120, 6))
    for seed in (3_000_000_000, [1, 2], np.random.default_rng(0)):
        isoscope.audit(X, seed=seed)
        isoscope.advise(X, candidates=[isoscope.Center()], seed=seed)
