"""A saved affine repair without scikit-learn is bit-identical to the class, and rejects the same input."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone

from isoscope import Center, Chain, InputError, load_transform
from isoscope.transforms.maps import load_plain
from tests.transforms.conftest import AFFINE, CHAINS, CLUSTERED


@pytest.mark.parametrize("repair", [*AFFINE, *CHAINS[:2], Chain([])], ids=repr)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_result_is_identical_to_the_class(repair, dtype, clusters, tmp_path):
    clone(repair).fit(clusters + 100).save(tmp_path / "a")
    X = (clusters + 100).astype(dtype)
    plain, known = load_plain(tmp_path / "a"), load_transform(tmp_path / "a")
    found = plain.transform(X)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, known.transform(X))
    plain.save(tmp_path / "b")
    assert (tmp_path / "b" / "config.json").read_bytes() == (tmp_path / "a" / "config.json").read_bytes()


@pytest.mark.parametrize("repair", [CLUSTERED[1], CHAINS[-1]], ids=repr)
def test_clustered_repairs_need_the_class(repair, clusters, tmp_path):
    clone(repair).fit(clusters).save(tmp_path / "a")
    assert load_plain(tmp_path / "a") is None


def test_non_repairs_raise(clusters, tmp_path):
    with pytest.raises(InputError, match=r"nowhere is not a saved repair: it has no config\.json"):
        load_plain(tmp_path / "nowhere")
    Center().fit(clusters).save(tmp_path / "a")
    text = (tmp_path / "a" / "config.json").read_text(encoding="utf-8")
    (tmp_path / "a" / "config.json").write_text(text.replace('"dimensions": 8', '"dimensions": 7'), encoding="utf-8")
    with pytest.raises(InputError, match="checksum differs"):
        load_plain(tmp_path / "a")


def test_applying_imports_no_scikit_learn(clusters, tmp_path):
    np.save(tmp_path / "a.npy", clusters)
    Center().fit(clusters).save(tmp_path / "repair")
    code = (
        "import sys; from isoscope.cli.main import main; "
        "assert main(['apply', 'repair', 'a.npy', '-o', 'b.npy']) == 0; assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "b.npy").exists()
