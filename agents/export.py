"""A trained agent as an ONNX model, for whatever runs those; nothing of torch is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import bbrgym
from bbrgym.agents.policy import Agent, load_agent

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

OPSET: Final = 17
"""Of the operators, none is newer than 13; runtimes since 2022 know it."""

IR_VERSION: Final = 8
"""The file format's version of the same time: runtimes refuse files that are newer than themselves."""


def export(arguments: Sequence[str]) -> int:
    """The command `bbrgym export AGENT FILE.onnx`.

    Raises:
        ValueError: not these two arguments.
        FileNotFoundError: there is no agent.
        ModuleNotFoundError: onnx is not installed.
    """
    if len(arguments) != 2 or not arguments[1].endswith(".onnx"):
        raise ValueError("give an agent (its training run or folder) and a file: bbrgym export runs/train/… agent.onnx")
    agent = load_agent(arguments[0])
    path = Path(arguments[1])
    agent.to_onnx(path)
    names = " and ".join(name for name, _ in _states(agent))
    print(
        f"{path}: observations (N, {agent.network.inputs}) to actions (N, {agent.network.outputs})"
        + (f", with the states {names} in and out" if names else "")
    )
    return 0


def onnx_model(agent: Agent) -> ModelProto:
    """The model that `Agent.to_onnx` writes.

    Raises:
        ModuleNotFoundError: onnx is not installed.
        ValueError: it is a scripted agent, which has no network.
    """
    helper = _onnx().helper
    network = agent.stored.network
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []

    def constant(name: str, value: Any) -> str:
        weights.append(_onnx().numpy_helper.from_array(np.ascontiguousarray(value, dtype=np.float32), name))
        return name

    def node(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    x = "observations"
    for i, (of_input, of_state, bias) in enumerate(network.lstm):
        name = f"lstm.{i}"
        seen = node("Gemm", [x, constant(f"{name}.input", of_input), constant(f"{name}.bias", bias)],
                    f"{name}.seen", transB=1)  # fmt: skip
        gates = node("Gemm", [f"hidden.{i}", constant(f"{name}.state", of_state), seen], f"{name}.gates", transB=1)
        split = [f"{name}.{gate}" for gate in ("enter", "forget", "candidate", "leave")]
        nodes.append(helper.make_node("Split", [gates], split, axis=1))
        enter, forget, leave = (node("Sigmoid", [gate], f"{gate}.open") for gate in (split[0], split[1], split[3]))
        candidate = node("Tanh", [split[2]], f"{name}.new")
        kept = node("Mul", [forget, f"cell.{i}"], f"{name}.kept")
        added = node("Mul", [enter, candidate], f"{name}.added")
        cell = node("Add", [kept, added], f"next_cell.{i}")
        x = node("Mul", [leave, node("Tanh", [cell], f"{name}.told")], f"next_hidden.{i}")
    for i, (weight, bias) in enumerate(network.layers):
        name = f"layer.{i}"
        x = node("Gemm", [x, constant(f"{name}.weight", weight), constant(f"{name}.bias", bias)], f"{name}.sum",
                 transB=1)  # fmt: skip
        if i < len(network.layers) - 1:
            x = node("Tanh" if network.activation == "tanh" else "Relu", [x], f"{name}.out")
    if network.output == "tanh":
        node("Tanh", [x], "actions")
    else:
        node("Clip", [x, constant("lowest", -1.0), constant("highest", 1.0)], "actions")

    def values(name: str, width: int) -> ValueInfoProto:
        info: ValueInfoProto = helper.make_tensor_value_info(name, _onnx().TensorProto.FLOAT, ["N", width])
        return info

    states = _states(agent)
    graph = helper.make_graph(
        nodes,
        "policy",
        [values("observations", network.inputs), *(values(name, width) for name, width in states)],
        [values("actions", network.outputs), *(values(f"next_{name}", width) for name, width in states)],
        weights,
    )
    model: ModelProto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="bbrgym",
        producer_version=bbrgym.__version__,
    )
    config = agent.spec.to_config()
    described = {group: json.dumps(config[group]) for group in ("observation", "action", "env")}
    helper.set_model_props(model, described | {"content_hash": agent.content_hash})
    _onnx().checker.check_model(model, full_check=True)
    return model


def _states(agent: Agent) -> list[tuple[str, int]]:
    """Names and widths of what a recurrent agent remembers."""
    return [
        (f"{kind}.{i}", of_state.shape[1])
        for i, (_, of_state, _) in enumerate(agent.stored.network.lstm)
        for kind in ("hidden", "cell")
    ]


def _onnx() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; an export needs it: pip install 'bbrgym[onnx]'") from error
    return onnx
