"""A trained policy as an ONNX model, for any ONNX runtime; torch is not needed."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bbrgym.agents.card import facts
from bbrgym.baselines.policy_file import Network, StoredPolicy
from bbrgym.extras import optional
from bbrgym.files import replace_file

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

OPSET: Final = 17
"""No operator needs more than 13; runtimes since 2022 support it."""

IR_VERSION: Final = 8
"""File format version of the same time: runtimes refuse newer files."""


def write_onnx(policy: StoredPolicy, path: Path) -> None:
    """Write a policy's network as an ONNX model.

    Inputs and outputs are float32: `observations` (N, length of an observation) to `actions` (N, 2) in [-1, 1], equal
    to `Agent.predict` up to rounding. A recurrent policy also has the inputs and outputs of `state_names`: zeros at the
    beginning of an episode, and then the outputs `next_…` of the previous step. The meaning of observations and
    actions is in the model's metadata, as JSON: `observation`, `action` and `env` (conf/'s groups). So are `training`
    (of `StoredPolicy`) and `card`, the facts of the model card. The `content_hash` is plain text.

    Args:
        policy: for example `Agent.stored`, or `read_policy(path)`.
        path: the file; its folder must exist.

    Raises:
        ModuleNotFoundError: onnx is not installed.
    """
    content = _onnx_model(policy).SerializeToString()
    replace_file(path, lambda temporary: temporary.write_bytes(content))


def state_names(network: Network) -> dict[str, int]:
    """Return a recurrent network's states and their widths: `hidden.i` and `cell.i` (N, H) for each LSTM layer i."""
    widths = [of_state.shape[1] for _, of_state, _ in network.lstm]
    return {f"{kind}.{i}": width for i, width in enumerate(widths) for kind in ("hidden", "cell")}


def graph_of(network: Network) -> GraphProto:
    """Return the ONNX graph of a network.

    Raises:
        ModuleNotFoundError: onnx is not installed.
    """
    onnx = _onnx()
    helper = onnx.helper
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []

    def constant(name: str, value: Any) -> str:
        weights.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value, dtype=np.float32), name))
        return name

    def node(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    x = "observations"
    for i, (of_input, of_state, bias) in enumerate(network.lstm):
        name = f"lstm.{i}"
        inputs = [x, constant(f"{name}.input", of_input), constant(f"{name}.bias", bias)]
        from_input = node("Gemm", inputs, f"{name}.from_input", transB=1)
        inputs = [f"hidden.{i}", constant(f"{name}.state", of_state), from_input]
        gates = node("Gemm", inputs, f"{name}.gates", transB=1)
        split = [f"{name}.{gate}" for gate in ("input_gate", "forget_gate", "candidate", "output_gate")]
        nodes.append(helper.make_node("Split", [gates], split, axis=1))
        enter, forget, leave = (node("Sigmoid", [gate], f"{gate}.open") for gate in (split[0], split[1], split[3]))
        candidate = node("Tanh", [split[2]], f"{name}.new")
        kept = node("Mul", [forget, f"cell.{i}"], f"{name}.kept")
        added = node("Mul", [enter, candidate], f"{name}.added")
        cell = node("Add", [kept, added], f"next_cell.{i}")
        x = node("Mul", [leave, node("Tanh", [cell], f"{name}.squashed")], f"next_hidden.{i}")
    for i, (weight, bias) in enumerate(network.layers):
        name = f"layer.{i}"
        inputs = [x, constant(f"{name}.weight", weight), constant(f"{name}.bias", bias)]
        x = node("Gemm", inputs, f"{name}.sum", transB=1)
        if i < len(network.layers) - 1:
            x = node("Tanh" if network.activation == "tanh" else "Relu", [x], f"{name}.out")
    if network.skip is not None:
        x = node("Gemm", ["observations", constant("skip.weight", network.skip), x], "skip.sum", transB=1)
    if network.output == "tanh":
        node("Tanh", [x], "actions")
    else:
        node("Clip", [x, constant("lowest", -1.0), constant("highest", 1.0)], "actions")

    def values(name: str, width: int) -> ValueInfoProto:
        info: ValueInfoProto = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", width])
        return info

    states = state_names(network).items()
    graph: GraphProto = helper.make_graph(
        nodes,
        "policy",
        [values("observations", network.inputs), *(values(name, width) for name, width in states)],
        [values("actions", network.outputs), *(values(f"next_{name}", width) for name, width in states)],
        weights,
    )
    return graph


def _onnx_model(policy: StoredPolicy) -> ModelProto:
    onnx = _onnx()
    helper = onnx.helper
    model: ModelProto = helper.make_model(
        graph_of(policy.network),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="bbrgym",
        producer_version=metadata.version("bbrgym"),
    )
    described: dict[str, Any] = {group: policy.spec[group] for group in ("observation", "action", "env")}
    described |= {"training": dict(policy.training), "card": facts(policy)}
    properties = {name: json.dumps(value) for name, value in described.items()}
    helper.set_model_props(model, properties | {"content_hash": policy.content_hash})
    onnx.checker.check_model(model, full_check=True)
    return model


def _onnx() -> Any:
    with optional("export"):
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    return onnx
