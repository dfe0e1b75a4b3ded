"""A chain equals its repairs applied one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope import AllButTheTop, Center, Chain, ClusterNull, InputError, Standardize, Whiten, load_transform, sketch


def test_each_step_is_fitted_to_the_previous_output(clusters):
    first = Standardize().fit(clusters)
    second = AllButTheTop(2).fit(first.transform(clusters))
    chain = Chain([Standardize(), AllButTheTop(2)]).fit(clusters)
    np.testing.assert_array_equal(chain.transform(clusters), second.transform(first.transform(clusters)))


def test_given_steps_stay_unfitted(clusters):
    steps = [Center(), Whiten()]
    chain = Chain(steps).fit(clusters)
    assert chain.steps is steps
    assert not hasattr(steps[0], "mean_")


def test_affine_steps_combine_into_one_matrix(clusters):
    chain = Chain([Standardize(), AllButTheTop(1), Whiten("pca", 3)]).fit(clusters)
    A, b = chain.as_affine()
    assert A.shape == (clusters.shape[1], 3)
    np.testing.assert_allclose(clusters @ A + b, chain.transform(clusters), atol=1e-10)


def test_a_chain_with_clusters_is_not_affine(clusters):
    chain = Chain([Center(), ClusterNull(2, 1, random_state=0)]).fit(clusters)
    assert not chain.is_affine
    with pytest.raises(InputError, match="not affine"):
        chain.as_affine()


def test_empty_chain_is_the_identity(clusters, tmp_path):
    chain = Chain().fit(clusters)
    chain.save(tmp_path / "a")
    again = load_transform(tmp_path / "a")
    for X in (clusters, clusters.astype(np.float32), clusters.astype(np.float16)):
        np.testing.assert_array_equal(again.transform(X), X)
    A, b = again.as_affine()
    np.testing.assert_array_equal(A, np.eye(clusters.shape[1]))
    assert not b.any()
    with pytest.raises(ValueError, match="features"):
        again.transform(clusters[:, 1:])


def test_output_feature_names_are_those_of_the_last_step(clusters):
    assert Chain([Center(), Whiten("pca", 2)]).fit(clusters).get_feature_names_out().tolist() == ["whiten0", "whiten1"]


def test_sketch_can_fit_only_a_single_step(clusters):
    total = sketch(clusters)
    np.testing.assert_allclose(
        Chain([Whiten()]).fit(total).transform(clusters), Whiten().fit(clusters).transform(clusters), atol=1e-10
    )
    with pytest.raises(InputError, match="only the first step"):
        Chain([Center(), Whiten()]).fit(total)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (Center(), "need a list of repairs"),
        ("center", "need a list of repairs"),
        ([Center], "a step is a"),
        ([Chain([])], "a step is a Chain"),
        ([Center(), AllButTheTop(-1)], "n_components is -1"),
    ],
)
def test_invalid_steps_raise(steps, words, clusters):
    with pytest.raises(InputError, match=words):
        Chain(steps).fit(clusters)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda config: config["steps"].reverse(), "takes"),
        (lambda config: config["steps"].pop(), "checksum|complete"),
        (lambda config: config["steps"][0].update({"class": "Chain"}), "step 0 has the unknown class 'Chain'"),
        (lambda config: config.pop("steps"), "complete"),
    ],
)
def test_modified_chain_raises(change, words, clusters, tmp_path):
    import json

    from safetensors.numpy import load_file

    from isoscope.sketching.file import checksum

    Chain([Center(), Whiten("pca", 2)]).fit(clusters).save(tmp_path / "a")
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    sealed = words != "checksum|complete"
    change(config)
    if sealed:
        rest = {key: value for key, value in config.items() if key != "checksum"}
        config["checksum"] = checksum(load_file(tmp_path / "a" / "model.safetensors"), rest)
    (tmp_path / "a" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=words if words != "takes" else "complete|takes"):
        load_transform(tmp_path / "a")
