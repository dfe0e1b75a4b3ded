"""Export repairs as ONNX models or as modules of a Sentence Transformers pipeline."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.errors import MissingExtra
from isoscope._io.files import atomic_replace

if TYPE_CHECKING:
    from isoscope.transforms.repair import Repair

_OPSET, _IR = 17, 8  # versions of ONNX 1.12, which current runtimes support


def to_sentence_transformers(repair: Any) -> Any:
    """Return a Sentence Transformers module that applies a repair; see `Repair.to_sentence_transformers`."""
    try:
        import torch
        from sentence_transformers.base.modules import Dense
    except ImportError as error:
        raise MissingExtra(
            "a Sentence Transformers module needs sentence-transformers 5.4 or later: "
            "pip install 'isoscope[sentence-transformers]'"
        ) from error
    if not repair.is_affine:
        from isoscope.transforms.sentence_module import RepairModule

        return RepairModule(repair)
    A, b = repair.as_affine()
    module = Dense(
        in_features=A.shape[0],
        out_features=A.shape[1],
        activation_function=torch.nn.Identity(),
        init_weight=torch.tensor(np.ascontiguousarray(A.T), dtype=torch.float32),
        init_bias=torch.tensor(b, dtype=torch.float32),
    )
    return module.requires_grad_(False)


def to_onnx(repair: Repair, path: str | os.PathLike[str] | None) -> Any:
    """Return a repair as an ONNX model, and write it to `path` if given; see `Repair.to_onnx`."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtra("exporting to ONNX needs the package onnx: pip install 'isoscope[onnx]'") from error
    graph = Graph(onnx)
    if (repaired := repair._add_to_onnx(graph, "vectors")) == "vectors":
        graph.add("Identity", "vectors")
    else:
        longest = graph.add("ReduceMax", graph.add("Abs", "vectors"), axes=[1])
        zero = np.zeros(1, np.float32)
        graph.add("Where", graph.add("Equal", longest, zero), zero, repaired)
    graph.nodes[-1].output[0] = "repaired"
    d, width = repair.n_features_in_, len(repair.get_feature_names_out())
    number = onnx.TensorProto.FLOAT
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            type(repair).__name__,
            [onnx.helper.make_tensor_value_info("vectors", number, ["n", d])],
            [onnx.helper.make_tensor_value_info("repaired", number, ["n", width])],
            graph.constants,
        ),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="isoscope",
        producer_version=isoscope.__version__,
        doc_string=repr(repair),
    )
    onnx.checker.check_model(model, full_check=True)
    if path is not None:
        with atomic_replace(path) as temporary:
            temporary.write_bytes(model.SerializeToString())
    return model


class Graph:
    """An ONNX graph under construction; each node has one output, which is identified by its name."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str | np.ndarray, **attributes: Any) -> str:
        """Add a node and return the name of its output; arrays among the inputs become constants."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [output], **attributes))
        return output

    def cast(self, value: str, dtype: type) -> str:
        """Add a node that converts values to another dtype."""
        return self.add("Cast", value, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def subtract_means(self, vectors: str, means: np.ndarray, codes: str | None = None) -> str:
        """Add nodes that subtract the mean, or the cluster means, in two float32 steps as `Repair.transform` does."""
        high = means.astype(np.float32)
        rest = vectors
        for part in (high, (means - high).astype(np.float32)):
            rest = self.add("Sub", rest, part if codes is None else self.add("Gather", part, codes, axis=0))
        return rest

    def remove_directions(self, vectors: str, directions: np.ndarray, along: str) -> str:
        """Add nodes that remove the directions; `along` is the vectors' coordinates along them."""
        return self.add("Sub", vectors, self.add("MatMul", along, directions.astype(np.float32)))

    def _constant(self, value: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name
