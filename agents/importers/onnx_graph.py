"""Models in ONNX: a chain of affine operators and activations from the observations to the actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from bbrgym.agents.export import graph_of
from bbrgym.agents.importers.foreign import ForeignModel
from bbrgym.baselines.policy_file import ACTIVATIONS, Array, Network
from bbrgym.extras import optional
from bbrgym.files import DAMAGES, damage

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

_Exact = npt.NDArray[np.float64]
_Value = TypeVar("_Value", int, float, list[int])

_PASSING: Final = ("Identity", "Cast", "Flatten", "Dropout", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that leave the values of an observation as they are (Cast: to a type of `_EXACT_TYPES`)."""

_EXACT_TYPES: Final = {1: "float", 11: "double"}
"""Numbers of `onnx.TensorProto`: the types that have all values of an observation."""

_NUMBER_TYPES: Final = (*range(1, 8), *range(9, 14), 16)
"""Numbers of `onnx.TensorProto`: floats, integers and booleans, without strings and complex numbers."""

_LAYERS: Final = ("Gemm", "MatMul")
_ELEMENTWISE: Final = ("Add", "Sub", "Mul", "Div")
_ACTIVATIONS: Final = {"Tanh": "tanh", "Relu": "relu"}

OPERATORS: Final = ("Constant", "Transpose", *_PASSING, *_LAYERS, *_ELEMENTWISE, *_ACTIVATIONS, "Clip")
"""The operators that are read; the first two make constants."""


def read_onnx(path: Path) -> ForeignModel:
    """Read a network of fully connected layers, or one that `bbrgym export` wrote, also with an LSTM or a skip.

    Its first output is the actions. Affine operators between layers, such as a normalisation of the observations,
    become part of the weights. An output that nothing bounds is clipped to [-1, 1].

    Raises:
        ValueError: it has another operator, or its weights are in other files.
        ModuleNotFoundError: onnx is not installed.
    """
    model = _load(path)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    known = ("training", "observation", "action", "env")  # which `bbrgym export` wrote
    described = {name: _json(name, properties[name]) for name in known if name in properties}
    shape = None
    with np.errstate(over="ignore", invalid="ignore"):  # the network refuses what is not finite
        constants = _constants(model.graph)
        if any(name.startswith(("lstm.", "skip.")) for name in constants):
            network = _exported(model.graph, constants)
        else:
            observations, chain = _chain(model.graph, constants)
            shape = _shape(observations)
            network = _network(chain)
    origin = f"ONNX, {model.producer_name} {model.producer_version}".strip()
    training = described.pop("training", {})
    return ForeignModel(network, origin, training=training, settings=described, shape=shape)


def _load(path: Path) -> ModelProto:
    with optional("importing an ONNX model"):
        import onnx
    from google.protobuf.message import DecodeError

    try:
        return onnx.load_model_from_string(path.read_bytes())
    except DecodeError as error:
        raise ValueError(f"it is no ONNX model: {error}") from error


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its metadata {name!r} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"its metadata {name!r} must be a mapping, got {text[:40]}")
    return value


def _constants(graph: GraphProto) -> dict[str, _Exact]:
    """Return the values that do not depend on the observations, by their names."""
    # A name that is not UTF-8 is read as bytes.
    constants = {str(tensor.name): _array(f"its constant {tensor.name!r}", tensor) for tensor in graph.initializer}
    for node in graph.node:
        operator = _Operator(node, constants)
        if operator.kind == "Constant":
            constants[operator.output] = operator.value()
        elif operator.kind == "Transpose" and operator.is_constant(0):
            array = constants[operator.input(0)]
            order = operator.attribute("perm", list(range(array.ndim))[::-1])
            if sorted(order) != list(range(array.ndim)):
                raise ValueError(f"{operator} must permute the dimensions of the shape {array.shape}, got {order}")
            constants[operator.output] = array.transpose(order)
    constants.pop("", None)  # the name of what is left out
    return constants


def _array(what: str, tensor: TensorProto) -> _Exact:
    import onnx.numpy_helper

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ValueError("its weights are in other files: save it in one file (external_data=False)")
    if tensor.data_type not in _NUMBER_TYPES:
        raise ValueError(f"{what} must be of real numbers, got the type {tensor.data_type}")
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor), np.float64)
    except DAMAGES as error:
        raise ValueError(f"{what} is damaged: {damage(error)}") from error


class _Operator:
    """An operator of a graph. Any of its inputs, outputs and attributes can be missing."""

    def __init__(self, node: NodeProto, constants: Mapping[str, _Exact]) -> None:
        self.kind = node.op_type
        self.output = str(node.output[0]) if node.output else ""
        self._node = node
        self._constants = constants

    def __str__(self) -> str:
        return f"its operator {self.kind} ({self.output})"

    def input(self, index: int) -> str:
        """Return the name of an input; "" if it is left out."""
        return self._node.input[index] if index < len(self._node.input) else ""

    def source(self) -> str:
        """Return the one input that depends on the observations."""
        named = list(filter(None, self._node.input))[: 1 if self.kind in _PASSING else None]
        computed = [name for name in named if name not in self._constants]
        if len(computed) != 1:
            raise ValueError(
                f"{self} combines {len(computed)} values: only a chain of fully connected layers can be imported"
            )
        if computed[0] != self.input(0) and self.kind not in _ELEMENTWISE:
            raise ValueError(f"{self} must have the values as its first input, got {list(self._node.input)}")
        return computed[0]

    def is_constant(self, index: int) -> bool:
        return self.input(index) in self._constants

    def constant(self, index: int) -> _Exact | None:
        """Return a constant input; None if it is left out."""
        if self.input(index) and not self.is_constant(index):
            raise ValueError(f"{self} must have a constant as its input {index + 1}, got {self.input(index)!r}")
        return self._constants.get(self.input(index))

    def row(self, index: int) -> _Exact | None:
        """Return a constant input of one dimension, which is the same for all observations; None if it is left out."""
        array = self.constant(index)
        if array is not None and not array.size == (array.shape or (1,))[-1] > 0:
            raise ValueError(f"{self} must have a number or a row as its constant, got the shape {array.shape}")
        return None if array is None else array.reshape(-1)

    def attribute(self, name: str, default: _Value) -> _Value:
        """Return an attribute, which must have the type of the default."""
        entry = next((entry for entry in self._node.attribute if entry.name == name), None)
        if entry is None:
            return default
        value: Any = {1: entry.f, 2: entry.i, 7: list(entry.ints)}.get(entry.type)  # the types of AttributeProto
        if type(value) is not type(default):
            kind = {int: "an integer", float: "a float"}.get(type(default), "integers")
            raise ValueError(f"{self} must have {kind} as attribute {name!r}, got the type {entry.type}")
        return value

    def value(self) -> _Exact:
        """Return what a Constant is."""
        for entry in self._node.attribute:
            numbers = {"value_float": entry.f, "value_floats": entry.floats, "value_int": entry.i}
            if entry.name == "value":
                return _array(str(self), entry.t)
            if entry.name in numbers or entry.name == "value_ints":
                return np.array(numbers.get(entry.name, entry.ints), np.float64)
        raise ValueError(f"{self} must be of real numbers, got {[entry.name for entry in self._node.attribute]}")


def _exported(graph: GraphProto, constants: Mapping[str, _Exact]) -> Network:
    """Return a network that `bbrgym export` wrote and no chain is, after checking that the graph computes just that."""
    kinds = ("lstm.", "layer.", "skip.")
    weights = {n: array.astype(np.float32) for n, array in constants.items() if n.startswith(kinds)}
    for activation in ACTIVATIONS:
        for output in ("clip", "tanh"):
            network = Network.from_arrays(weights, activation, output)
            if graph_of(network) == graph:
                return network
    raise ValueError("its LSTM or skip was not written by bbrgym export: only fully connected layers can be imported")


def _shape(observations: ValueInfoProto) -> tuple[int, ...] | None:
    """Return the shape of an observation; None if it has one dimension, or one that is not fixed."""
    tensor = observations.type.tensor_type
    if tensor.elem_type not in _EXACT_TYPES:
        raise ValueError(
            f"its input {observations.name!r} must be of {' or '.join(_EXACT_TYPES.values())}, as observations are, "
            f"got the type {tensor.elem_type}"
        )
    shape = tuple(int(dimension.dim_value) for dimension in tensor.shape.dim)[1:]
    return shape if len(shape) > 1 and min(shape) > 0 else None


def _chain(graph: GraphProto, constants: Mapping[str, _Exact]) -> tuple[ValueInfoProto, list[_Operator]]:
    """Return the observations, and the operators from them to the first output."""
    made_by = {operator.output: operator for operator in (_Operator(node, constants) for node in graph.node)}
    inputs = {str(entry.name): entry for entry in graph.input if entry.name not in constants}
    if not graph.output:
        raise ValueError("it is no ONNX model: its graph has no output")
    name = graph.output[0].name
    chain: list[_Operator] = []
    while name not in inputs:
        operator = made_by.get(name)
        if operator is None or len(chain) > len(graph.node):
            raise ValueError(f"nothing computes its value {name!r}")
        chain.append(operator)
        name = operator.source()
    return inputs[name], chain[::-1]


def _network(chain: list[_Operator]) -> Network:
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

    for position, operator in enumerate(chain):
        is_last = all(later.kind in _PASSING for later in chain[position + 1 :])
        if operator.kind in _PASSING:
            _check_passing(operator)
        elif operator.kind in _ACTIVATIONS:
            finish_layer()
            activations.append(_ACTIVATIONS[operator.kind])
        elif operator.kind == "Clip" and is_last:
            _check_clip(operator)
            output = "clip"
        elif operator.kind in _LAYERS:
            weight, bias = _layer(operator, matrix, offset)
            offset = weight @ np.broadcast_to(offset, weight.shape[1]) + bias
            matrix = weight @ matrix if matrix.ndim == 2 else weight * matrix
        elif operator.kind in _ELEMENTWISE:
            matrix, offset = _elementwise(operator, matrix, offset)
        else:
            raise ValueError(
                f"{operator} is none of {', '.join((*_LAYERS, *_ELEMENTWISE, *_ACTIVATIONS))}, and Clip at the end"
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


def _check_passing(operator: _Operator) -> None:
    if operator.kind == "Cast" and (to := operator.attribute("to", 0)) not in _EXACT_TYPES:
        raise ValueError(f"{operator} must be to {' or '.join(_EXACT_TYPES.values())}, got the type {to}")
    if operator.kind == "Dropout" and (is_training := operator.constant(2)) is not None and is_training.any():
        raise ValueError(f"{operator} drops values as in training: export the model in its evaluation mode")


def _check_clip(operator: _Operator) -> None:
    low, high = (
        operator.attribute(name, default) if bound is None else bound
        for bound, name, default in (
            (operator.row(1), "min", -np.inf),  # attributes before version 11, inputs since then
            (operator.row(2), "max", np.inf),
        )
    )
    if not (np.all(low == -1) and np.all(high == 1)):
        shown = ", ".join(f"{np.unique(bound).tolist()}"[1:-1] for bound in (low, high))
        raise ValueError(f"{operator} clips the actions to [{shown}], but must clip them to [-1, 1]")


def _layer(operator: _Operator, matrix: _Exact, offset: _Exact) -> tuple[_Exact, _Exact | float]:
    """Return a layer's weight, of shape (outputs, inputs), and bias."""
    weight = operator.constant(1)
    if weight is None:
        raise ValueError(f"{operator} must multiply the values by a constant")
    alpha, beta, is_transposed = 1.0, 1.0, 0
    if operator.kind == "Gemm":
        alpha, beta = (operator.attribute(name, 1.0) for name in ("alpha", "beta"))
        is_transposed = operator.attribute("transB", 0)
        if operator.attribute("transA", 0):
            raise ValueError(f"{operator} transposes the observations")
    weight = alpha * (weight if is_transposed else weight.T)
    width = _width(matrix, offset)
    if weight.ndim != 2 or (weight.shape[1] != width and not (matrix.ndim == 1 == width)):
        raise ValueError(f"{operator} has a weight of shape {weight.shape}, which does not fit {width} values")
    bias = operator.row(2)
    if bias is not None and len(bias) not in (1, len(weight)):
        raise ValueError(f"{operator} must have a bias of {len(weight)} values, got {len(bias)}")
    return weight, 0.0 if bias is None else beta * bias


def _elementwise(operator: _Operator, matrix: _Exact, offset: _Exact) -> tuple[_Exact, _Exact]:
    is_constant_first = operator.is_constant(0)
    value = operator.row(0 if is_constant_first else 1)
    width = _width(matrix, offset)
    if value is None:
        raise ValueError(f"{operator} must have two inputs, got one")
    if len(value) not in (1, width) and not (matrix.ndim == 1 == width):
        raise ValueError(f"{operator} has a constant of {len(value)} values, which does not fit {width} values")
    match operator.kind:
        case "Add":
            return matrix, offset + value
        case "Sub" if is_constant_first:
            return -matrix, value - offset
        case "Sub":
            return matrix, offset - value
        case "Div" if is_constant_first:
            raise ValueError(f"{operator} divides by the observations")
        case "Div" if (value == 0).any():
            raise ValueError(f"{operator} divides by 0")
    factor = value if operator.kind == "Mul" else 1.0 / value
    return (factor[:, np.newaxis] * matrix if matrix.ndim == 2 else factor * matrix), factor * offset


def _width(matrix: _Exact, offset: _Exact) -> int:
    """Return the number of values; 1 if nothing says it so far."""
    return len(matrix) if matrix.ndim == 2 else max(len(matrix), len(offset))
