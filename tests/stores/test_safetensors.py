"""safetensors, bfloat16 included."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from isoscope import InputError
from isoscope.errors import FileFormatError
from isoscope.stores.open import open_store


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8"])
def test_numbers_keep_their_dtype(dtype, tmp_path):
    array = np.arange(12).reshape(4, 3).astype(dtype)
    save_file({"odd": np.ones(1, np.uint8), "v": array}, tmp_path / "a.safetensors")
    store = open_store(tmp_path / "a.safetensors")
    assert store.dtype == dtype
    np.testing.assert_array_equal(next(store.chunks()), array)


def test_bfloat16_becomes_float32(tmp_path, truth):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    tensor = torch.tensor(truth.vectors).to(torch.bfloat16)
    save_torch({"odd": torch.ones(3, dtype=torch.uint8), "embeddings": tensor}, tmp_path / "a.safetensors")
    store = open_store(tmp_path / "a.safetensors")
    assert store.dtype == np.float32
    np.testing.assert_array_equal(np.concatenate(list(store.chunks(100))), tensor.float().numpy())
    np.testing.assert_array_equal(store.take([9, 2, 9]), tensor.float().numpy()[[9, 2, 9]])


def test_tensor_can_be_chosen_by_name(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"p": np.eye(3), "q": np.ones((3, 2)), "bias": np.zeros(3)}, path)
    with pytest.raises(InputError, match=r'several columns of vectors: p, q; choose one with vectors="p"'):
        open_store(path)
    assert open_store(path, vectors="q", labels="bias").labels.tolist() == [0, 0, 0]
    save_file({"bias": np.zeros(3)}, path)
    with pytest.raises(InputError, match="contains no vectors; its columns are bias"):
        open_store(path)
    save_file({"v": np.zeros((0, 3))}, path)
    with pytest.raises(InputError, match=r"a\.safetensors: v has no rows"):
        open_store(path)


def test_precision_below_16_bits_raises(tmp_path):
    head = json.dumps({"v": {"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"\0" * 4)
    with pytest.raises(InputError, match="contains no vectors; its columns are v"):
        open_store(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("about", "body", "why"),
    [
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, 12, "the tensors end at"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, 20, "the tensors end at"),
        ({"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 16]}, 16, r"do not match shape \[2, 3\] of F32"),
        ({"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]}, 16, r"do not match shape \[-2, -2\]"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [4, 20]}, 20, "16 bytes at offset 4"),
        ({"dtype": "F32", "shape": [2, 2]}, 16, "data_offsets"),
        ({"dtype": "F32", "shape": [2.0, 2], "data_offsets": [0, 16]}, 16, "not integers"),
        ({"dtype": "F32", "shape": [True, 4], "data_offsets": [0, 16]}, 16, "not integers"),
        ({"dtype": "odd", "shape": [2, 2], "data_offsets": [0, 16]}, 16, "odd"),
        ([], 16, ""),
    ],
)
def test_tensors_that_do_not_fill_the_file_are_rejected(tmp_path, about, body, why):
    head = json.dumps({"v": about}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(body))
    with pytest.raises(InputError, match=f"a damaged or truncated safetensors file: .*{why}.*; copy or write it again"):
        open_store(path)
    path.write_bytes((2**40).to_bytes(8, "little") + head)
    with pytest.raises(InputError, match="the header would take 1099511627776 bytes"):
        open_store(path)


def test_a_deeply_nested_header_raises(tmp_path):
    head = b'{"v": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    (tmp_path / "a.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(FileFormatError, match=r"a\.safetensors is a damaged or truncated safetensors file") as caught:
        open_store(tmp_path / "a.safetensors")
    assert len(str(caught.value)) < 500
