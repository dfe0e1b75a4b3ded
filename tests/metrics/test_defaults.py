"""The defaults of the metric functions are part of the API: results must not change silently."""

import inspect

import pytest

import isoscope
from isoscope._core.pairs import MAX_MEMORY

DEFAULTS = {
    "isoscore": {"unbiased": False, "groups": None},
    "isoscore_interval": {"unbiased": True, "groups": None, "confidence": 0.95},
    "isoscore_star": {"zeta": 0.2},
    "participation_ratio": {"unbiased": False, "groups": None},
    "spectrum": {"center": True},
    "anisotropy": {"k": 3, "center": False},
    "effective_rank": {"center": True},
    "mean_cosine": {},
    "cosine_contribution": {},
    "intra_similarity": {"per_type_cap": None, "seed": 0, "clustered": None},
    "inter_similarity": {"average": "instances", "per_type_cap": None, "seed": 0, "clustered": None},
    "partition_isotropy": {"signs": "both", "log": False},
    "lid": {
        "k": 100,
        "metric": "euclidean",
        "convention": "textbook",
        "sample": None,
        "seed": 0,
        "max_memory": MAX_MEMORY,
    },
    "two_nn": {"discard": 0.1, "sample": None, "seed": 0, "max_memory": MAX_MEMORY},
    "hubness": {"k": 10, "metric": "euclidean", "sample": None, "seed": 0, "max_memory": MAX_MEMORY},
    "cka": {"unbiased": True},
    "procrustes_distance": {},
    "mutual_knn": {"k": 10, "metric": "cosine", "per_point": False},
    "silhouette": {"metric": "euclidean", "per_point": False, "max_memory": MAX_MEMORY},
    "choose_clusters": {
        "numbers": range(2, 16),
        "least": 0.1,
        "sample": 20_000,
        "restarts": 10,
        "seed": 0,
        "max_memory": MAX_MEMORY,
    },
    "isotropy_objective": {"cosine": False},
    "silhouette_objective": {},
    "classifier_objective": {},
    "triplet_objective": {"squared": True, "max_memory": MAX_MEMORY},
    "h0_barcode": {"max_memory": MAX_MEMORY},
    "persistent_entropy": {},
    "select_bars": {"rule": "reference"},
    "uniformity": {"t": 2.0, "max_memory": MAX_MEMORY},
    "alignment": {"alpha": 2.0},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_stay_the_same(name):
    parameters = inspect.signature(getattr(isoscope.metrics, name)).parameters.values()
    assert {p.name: p.default for p in parameters if p.default is not p.empty} == DEFAULTS[name]


def test_every_metric_function_is_listed():
    public = {getattr(isoscope.metrics, name) for name in isoscope.metrics.__all__ if name.islower()}
    metrics = {f.__name__ for f in public if getattr(f, "__module__", "").startswith("isoscope.metrics.")}
    assert metrics == set(DEFAULTS)


@pytest.mark.parametrize("name", ["lid", "two_nn", "hubness"])
@pytest.mark.parametrize("seed", [[1, 2], None])
def test_seed_accepts_what_numpy_accepts(name, seed, rng):
    measure = getattr(isoscope, name)
    extra = {} if name == "two_nn" else {"k": 5}
    measure(rng.standard_normal((60, 4)), sample=40, seed=seed, **extra)


@pytest.mark.parametrize("seed", [-1, 1.5, "one"])
def test_other_seeds_raise_an_error(seed, rng):
    with pytest.raises(isoscope.InputError, match="seed is"):
        isoscope.two_nn(rng.standard_normal((60, 4)), sample=40, seed=seed)


def test_results_have_short_reprs(rng):
    X = rng.standard_normal((60, 4))
    assert repr(isoscope.hubness(X)).startswith("Hubness(skewness=")
    choice = repr(isoscope.choose_clusters(X, [2, 3]))
    assert choice.startswith("ClusterChoice(n_clusters=")
    assert "array" not in choice
