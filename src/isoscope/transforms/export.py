"""Repairs that go where the vectors are made: an ONNX model, or the end of a Sentence Transformers pipeline."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace
from isoscope.transforms.affine import AffineRepair, AllButTheTop, Standardize, Whiten
from isoscope.transforms.chain import Chain
from isoscope.transforms.clustered import ClusterCenter, ClusterNull

if TYPE_CHECKING:
    from isoscope.transforms.repair import Repair

_OPSET, _IR = 17, 8  # of ONNX 1.12: old enough for the runtimes in use


def to_sentence_transformers(repair: Repair) -> Any:
    """A module of Sentence Transformers that does what the repair does; see `Repair.to_sentence_transformers`."""
    try:
        import torch
        from sentence_transformers.base.modules import Dense
    except ImportError as error:
        raise InputError(
            "a pipeline's module needs sentence-transformers 5.4 or later: "
            "pip install 'isoscope[sentence-transformers]'"
        ) from error
    if not (isinstance(repair, AffineRepair) or (isinstance(repair, Chain) and repair.is_affine)):
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
    """The repair as an ONNX model, written to `path` if there is one; see `Repair.to_onnx`."""
    try:
        import onnx
    except ImportError as error:
        raise InputError("an ONNX model needs the package onnx: pip install 'isoscope[onnx]'") from error
    graph = _Graph(onnx)
    last = "vectors"
    for step in repair.steps_ if isinstance(repair, Chain) else [repair]:
        last = _add_repair(step, graph, last)
    if last == "vectors":
        graph.add("Identity", last)
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


class _Graph:
    """Nodes one after the other, each with the name of its one output."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str | np.ndarray, **attributes: Any) -> str:
        """A node; an array among its inputs becomes a constant."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [output], **attributes))
        return output

    def constant(self, value: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def cast(self, value: str, dtype: type) -> str:
        return self.add("Cast", value, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _add_repair(repair: Any, graph: _Graph, vectors: str) -> str:
    """Nodes from the vectors to the repaired ones, which are the last node's output."""
    if isinstance(repair, ClusterCenter):
        if not isinstance(repair.clusterer, str):
            raise InputError(
                f"the clusterer is a {type(repair.clusterer).__name__}, which cannot be written as ONNX: "
                'use clusterer="kmeans" or "gmm"'
            )
        codes = _nearest(repair, graph, vectors)
        rest = _add_subtraction(graph, vectors, repair.means_, codes)
        if isinstance(repair, ClusterNull) and repair.components_.shape[1]:
            return _add_nulls(repair.components_, graph, rest, codes)
        return rest
    rest = _add_subtraction(graph, vectors, repair.mean_)
    if isinstance(repair, Standardize):
        return graph.add("Div", rest, repair.scale_.astype(np.float32))
    if isinstance(repair, AllButTheTop) and len(repair.components_):
        along = graph.add("MatMul", rest, repair.components_.T.astype(np.float32))
        return _take_out(graph, rest, repair.components_, along)
    if isinstance(repair, Whiten):
        return graph.add("MatMul", rest, repair.matrix_.astype(np.float32))
    return rest


def _add_subtraction(graph: _Graph, vectors: str, means: np.ndarray, codes: str | None = None) -> str:
    """The vectors without their mean, which float32 takes in two steps as `Repair.transform` does."""
    high = means.astype(np.float32)
    rest = vectors
    for part in (high, (means - high).astype(np.float32)):
        rest = graph.add("Sub", rest, part if codes is None else graph.add("Gather", part, codes, axis=0))
    return rest


def _nearest(repair: ClusterCenter, graph: _Graph, vectors: str) -> str:
    """Each vector's cluster, in float64 as `ClusterCenter` has it: a rounding could put it across a border."""
    linear, constant, quadratic, shift = repair.score_coefficients()
    x = graph.add("Sub", graph.cast(vectors, np.float64), shift)
    scores = graph.add("Add", graph.add("MatMul", x, linear), constant)
    if quadratic is not None:
        scores = graph.add("Add", scores, graph.add("MatMul", graph.add("Mul", x, x), quadratic))
    return graph.add("ArgMax", scores, axis=1, keepdims=0)


def _add_nulls(components: np.ndarray, graph: _Graph, rest: str, codes: str) -> str:
    """Every cluster's directions at once, those of other clusters set to 0: no vector brings its own matrix."""
    clusters, k, d = components.shape
    flat = components.reshape(clusters * k, d)
    owners = np.repeat(np.arange(clusters), k)[None, :]
    own = graph.add("Equal", graph.add("Unsqueeze", codes, np.asarray([1])), owners)
    along = graph.add("MatMul", rest, flat.T.astype(np.float32))
    return _take_out(graph, rest, flat, graph.add("Mul", along, graph.cast(own, np.float32)))


def _take_out(graph: _Graph, rest: str, directions: np.ndarray, along: str) -> str:
    return graph.add("Sub", rest, graph.add("MatMul", along, directions.astype(np.float32)))
