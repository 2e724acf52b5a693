"""Models in ONNX: a chain of affine operators and activations from the observations to the actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym.agents.export import graph_of
from bbrgym.agents.importers.foreign import ForeignModel
from bbrgym.baselines.policy_file import ACTIVATIONS, Array, Network
from bbrgym.extras import optional

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_Exact = npt.NDArray[np.float64]

_PASSING: Final = ("Identity", "Cast", "Flatten", "Dropout", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that leave the values of an observation as they are (Cast: to a type of `_EXACT_TYPES`)."""

_EXACT_TYPES: Final = {1: "float", 11: "double"}
"""Numbers of `onnx.TensorProto`: the types that have all values of an observation."""

_ACTIVATIONS: Final = {"Tanh": "tanh", "Relu": "relu"}


def read_onnx(path: Path) -> ForeignModel:
    """Read a network of fully connected layers, or one that `bbrgym export` wrote, also with an LSTM.

    Its first output is the actions. Affine operators between layers, such as a normalisation of the observations,
    become part of the weights. An output that nothing bounds is clipped to [-1, 1].

    Raises:
        ValueError: it has another operator, or its weights are in other files.
        ModuleNotFoundError: onnx is not installed.
    """
    with optional("importing an ONNX model"):
        import onnx
        import onnx.numpy_helper
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except DecodeError as error:
        raise ValueError(f"it is no ONNX model: {error}") from error
    graph = model.graph
    properties = {entry.key: entry.value for entry in model.metadata_props}
    groups = ("observation", "action", "env")
    settings: dict[str, Any] = {name: json.loads(properties[name]) for name in groups if name in properties}
    constants: dict[str, _Exact] = {}
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ValueError("its weights are in other files: save it in one file (external_data=False)")
        constants[tensor.name] = np.asarray(onnx.numpy_helper.to_array(tensor), np.float64)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = np.asarray(onnx.numpy_helper.to_array(node.attribute[0].t), np.float64)
        elif node.op_type == "Transpose" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]].T
    if any(name.startswith("lstm.") for name in constants):
        network = _exported(graph, constants)
    else:
        network = _network(_chain(graph, constants), constants)
    origin = f"ONNX, {model.producer_name} {model.producer_version}".strip()
    return ForeignModel(network, origin, json.loads(properties.get("training", "{}")), settings)


def _exported(graph: GraphProto, constants: Mapping[str, _Exact]) -> Network:
    """Return the recurrent network that `bbrgym export` wrote, after checking that the graph computes just that."""
    weights = {n: array.astype(np.float32) for n, array in constants.items() if n.startswith(("lstm.", "layer."))}
    for activation in ACTIVATIONS:
        for output in ("clip", "tanh"):
            try:
                network = Network.from_arrays(weights, activation, output)
            except KeyError as error:
                raise ValueError(f"its weight {error} is missing") from error
            if graph_of(network) == graph:
                return network
    raise ValueError("its LSTM was not written by bbrgym export: only fully connected layers can be imported")


def _chain(graph: GraphProto, constants: Mapping[str, _Exact]) -> list[NodeProto]:
    """Return the operators from the observations to the first output."""
    made_by = {name: node for node in graph.node for name in node.output}
    inputs = {entry.name for entry in graph.input} - set(constants)
    if not graph.output:
        raise ValueError("it is no ONNX model: its graph has no output")
    name = graph.output[0].name
    chain: list[NodeProto] = []
    while name not in inputs:
        node = made_by.get(name)
        if node is None or len(chain) > len(graph.node):
            raise ValueError(f"nothing computes its value {name!r}")
        sources = [source for source in node.input if source and source not in constants]
        if node.op_type in _PASSING:
            sources = sources[:1]
        if len(sources) != 1:
            raise ValueError(
                f"its operator {node.op_type} ({node.output[0]}) combines {len(sources)} values: only a chain of fully "
                "connected layers can be imported"
            )
        chain.append(node)
        name = sources[0]
    return chain[::-1]


def _network(chain: list[NodeProto], constants: Mapping[str, _Exact]) -> Network:
    layers: list[tuple[Array, Array]] = []
    # What is between two activations: x -> matrix x + offset; a matrix of one dimension is a diagonal.
    matrix, offset = np.ones(1), np.zeros(1)
    activations: list[str] = []
    output: str | None = None

    def finish_layer() -> None:
        nonlocal matrix, offset
        if matrix.ndim != 2:
            raise ValueError("it has an activation or an output that no fully connected layer leads to")
        bias = np.broadcast_to(offset, len(matrix))
        layers.append((matrix.astype(np.float32), bias.astype(np.float32)))
        matrix, offset = np.ones(1), np.zeros(1)

    for position, node in enumerate(chain):
        operator = node.op_type
        if operator == "Cast" and node.attribute[0].i not in _EXACT_TYPES:
            raise ValueError(
                f"its operator Cast ({node.output[0]}) must be to {' or '.join(_EXACT_TYPES.values())}, got the type "
                f"{node.attribute[0].i}"
            )
        is_last = all(later.op_type in _PASSING for later in chain[position + 1 :])
        if operator in _PASSING:
            continue
        if operator in _ACTIVATIONS:
            finish_layer()
            activations.append(_ACTIVATIONS[operator])
        elif operator == "Clip" and is_last:
            if _clip_bounds(node, constants) != (-1.0, 1.0):
                raise ValueError(f"its output is clipped to {_clip_bounds(node, constants)}, but must be to (-1, 1)")
            output = "clip"
        elif operator in ("Gemm", "MatMul"):
            weight, bias = _affine(node, constants)
            if weight.ndim != 2 or (matrix.ndim == 2 and weight.shape[1] != len(matrix)):
                raise ValueError(f"its operator {operator} ({node.output[0]}) has a weight of shape {weight.shape}")
            offset = weight @ np.broadcast_to(offset, weight.shape[1]) + bias
            matrix = weight @ matrix if matrix.ndim == 2 else weight * matrix
        elif operator in ("Add", "Sub", "Mul", "Div"):
            matrix, offset = _elementwise(node, constants, matrix, offset)
        else:
            raise ValueError(
                f"its operator {operator} ({node.output[0]}) is none of Gemm, MatMul, Add, Sub, Mul, Div, Tanh, Relu, "
                "and Clip at the end"
            )
    is_untouched = matrix.ndim == 1 and (matrix == 1).all() and not offset.any()
    if layers and is_untouched and activations[-1] == "tanh":
        activations.pop()
        output = "tanh"  # which a clip after it does not change
    else:
        finish_layer()
    if len(set(activations)) > 1:
        raise ValueError(f"all its hidden layers must have the same activation, got {', '.join(activations)}")
    return Network(tuple(layers), (), activations[0] if activations else "tanh", output or "clip")


def _affine(node: NodeProto, constants: Mapping[str, _Exact]) -> tuple[_Exact, _Exact | float]:
    """Return a layer's weight, of shape (outputs, inputs), and bias."""
    if node.input[0] in constants or node.input[1] not in constants:
        raise ValueError(f"its operator {node.op_type} ({node.output[0]}) must multiply values by a constant")
    weight = constants[node.input[1]]
    attributes = {entry.name: entry for entry in node.attribute}
    if node.op_type == "MatMul":
        return weight.T, 0.0
    if "transA" in attributes and attributes["transA"].i:
        raise ValueError(f"its operator Gemm ({node.output[0]}) transposes the observations")
    alpha, beta = (attributes[name].f if name in attributes else 1.0 for name in ("alpha", "beta"))
    is_transposed = "transB" in attributes and attributes["transB"].i
    bias = constants[node.input[2]] if len(node.input) > 2 and node.input[2] else np.zeros(1)
    return alpha * (weight if is_transposed else weight.T), beta * bias.reshape(-1)


def _elementwise(
    node: NodeProto, constants: Mapping[str, _Exact], matrix: _Exact, offset: _Exact
) -> tuple[_Exact, _Exact]:
    is_constant_first = node.input[0] in constants
    value = constants[node.input[0 if is_constant_first else 1]]
    if value.size != max(value.shape, default=1):
        raise ValueError(f"its operator {node.op_type} ({node.output[0]}) has a constant of shape {value.shape}")
    value = value.reshape(-1)
    match node.op_type:
        case "Add":
            return matrix, offset + value
        case "Sub" if is_constant_first:
            return -matrix, value - offset
        case "Sub":
            return matrix, offset - value
        case "Div" if is_constant_first:
            raise ValueError(f"its operator Div ({node.output[0]}) divides by the observations")
    factor = value if node.op_type == "Mul" else 1.0 / value
    return (factor[:, np.newaxis] * matrix if matrix.ndim == 2 else factor * matrix), factor * offset


def _clip_bounds(node: NodeProto, constants: Mapping[str, _Exact]) -> tuple[float, ...]:
    bounds = {entry.name: entry.f for entry in node.attribute}  # of operators before version 11
    for name, source in zip(("min", "max"), node.input[1:], strict=False):
        bounds[name] = float(constants[source].reshape(-1)[0])
    return tuple(bounds.get(name, default) for name, default in (("min", -np.inf), ("max", np.inf)))
