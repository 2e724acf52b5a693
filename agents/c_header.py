"""A trained policy as one C header: features, network and gains, for any other stack. `policy.h.in` is its frame."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from string import Template
from textwrap import indent, wrap
from typing import Final

import numpy as np

from bbrgym import baselines
from bbrgym._controllers import LEAST_BDP, PACKETS_STEEPNESS, policy_start
from bbrgym.agents.card import facts
from bbrgym.baselines.policy_file import Network, StoredPolicy
from bbrgym.baselines.registry import defaults
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.observation import FEATURES, GAIN_COLUMNS, PREFERENCE, Feature
from bbrgym.files import replace_file

_FRAME: Final = Path(__file__).with_name("policy.h.in")
_ELEMENTARY_CODE: Final = (
    (Path(baselines.__file__).parent / "cc" / "elementary.h")
    .read_text(encoding="utf-8")
    .partition("namespace bbrgym {\n\n")[2]
    .partition("\n\n}  // namespace")[0]
)
"""The elementary functions, in C99."""
_WIDTH: Final = 110
"""Of a line, before comment marks and the names' beginning."""


def write_c_header(policy: StoredPolicy, path: Path) -> None:
    """Write a policy as a C header: C99 and C++, needing the C library alone.

    Every name begins with the file's: `policy.h` has `policy_reset` and `policy_step`. They turn a row of the
    controller `policy` into its gains, with the formulas of `baselines/cc/policy/features.cc` and the operations of
    `network.cc` in their order: bit-identical without fused multiply-add.

    Args:
        policy: for example `Agent.stored`, or `read_policy(path)`.
        path: the file; its folder must exist.

    Raises:
        ValueError: the file's name cannot begin names in C.
    """
    name = path.stem
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"the name of a C header must be letters, digits and '_', as policy.h, got '{path.name}'")
    content = _c_header(policy, name)
    replace_file(path, lambda temporary: temporary.write_text(content, encoding="utf-8"))


_OF_STATE: Final = {*GAIN_COLUMNS, PREFERENCE}
"""What the state has of a flow, not the row."""


def _c_header(policy: StoredPolicy, name: str) -> str:
    parts = _parts(policy)
    parts["elementary"] = _elementary("\n".join(parts.values()) + " ${p}_pow")
    code = {part: Template(text).substitute(p=name) for part, text in parts.items()}
    lines = [
        line
        for fact, text in facts(policy).items()
        for line in wrap(_harmless(f"{fact}: {text}"), _WIDTH, initial_indent=" * ", subsequent_indent=" *   ")
    ]
    given = {"p": name, "guard": f"{name.upper()}_H", "version": metadata.version("bbrgym"), "facts": "\n".join(lines)}
    return Template(_FRAME.read_text(encoding="utf-8")).substitute(code | given)


def _parts(policy: StoredPolicy) -> dict[str, str]:
    """Return the frame's parts by name, without `elementary`; `${p}` is what the header's names begin with."""
    observation, action, env = (policy.spec[group] for group in ("observation", "action", "env"))
    features = [FEATURES[feature] for feature in observation["features"]]
    has_preference = any(PREFERENCE in feature.columns for feature in features)
    observed = {column for feature in features for column in feature.columns} - _OF_STATE
    scale = action["cwnd_scale"]
    is_in_packets = scale == "packets"
    # C has no empty struct.
    needed = observed | {"bdp_packets"} if is_in_packets or not observed else observed
    start = {column: value for column, value in policy_start().items() if column in needed}
    cwnd, pacing = (f"{float(low)!r}, {float(high)!r}" for low, high in (action["cwnd_gain"], action["pacing_gain"]))
    step_ms, step_rtts = env["step_ms"], env["step_rtts"]
    states = [(i, of_state.shape[1]) for i, (_, of_state, _) in enumerate(policy.network.lstm)]
    first = defaults("policy")
    cwnd_function, cwnd_gain = "", f"${{p}}_gain(action[0], {cwnd})"
    if is_in_packets:
        cwnd_function = _CWND_GAIN_IN_PACKETS % (PACKETS_STEEPNESS, LEAST_BDP, LEAST_BDP, cwnd)
        cwnd_gain = "${p}_cwnd_gain(action[0], row->bdp_packets)"
    elif scale == "excess":
        excess = ", ".join(repr(float(bound) - 1.0) for bound in action["cwnd_gain"])
        cwnd_gain = f"${{p}}_clamp(1.0 + ${{p}}_gain(action[0], {excess}), {cwnd})"
    return {
        "step": f"{step_ms:g} ms" if step_ms else f"{step_rtts:g} x min_rtt",
        "interval": f"${{p}}_step_ms {float(step_ms)!r}" if step_ms else f"${{p}}_step_min_rtts {float(step_rtts)!r}",
        "features": str(len(features)),
        "history": str(observation["history"]),
        "columns": "\n".join(f"  /* {_wrapped(FLOW_COLUMNS[column], 5)} */\n  double {column};" for column in start),
        "least_packets": f"{defaults('bbr' if action.get('model') == 'bbr' else 'agent')['min_cwnd_packets']:g}",
        "memory": "".join(f"\n  float hidden_{i}[{width}];\n  float cell_{i}[{width}];" for i, width in states),
        "cwnd_bounds": f"[{cwnd}]",
        "pacing_bounds": f"[{pacing}]",
        "formulas": "\n\n".join(map(_formula, features)),
        "observe": "\n".join(
            ([] if observed else ["  (void)row;"])
            + [_wrapped(f"  latest[{i}] = {_value(feature)};", 6) for i, feature in enumerate(features)]
        ),
        "weights": "\n\n".join(_weights(policy.network)),
        "functions": "\n\n".join(_functions(policy.network)),
        "act": indent("\n".join(_act(policy.network)), "  "),
        "cwnd_function": cwnd_function,
        "cwnd_gain": cwnd_gain,
        "pacing_gain": f"${{p}}_gain(action[1], {pacing})",
        "neutral": ", ".join(_number(np.float32(feature.neutral)) for feature in features),
        "preference": _PREFERENCE if has_preference else "",
        "first_preference": f"\n  state->preference = {first[PREFERENCE]!r};" if has_preference else "",
        "first_cwnd_gain": repr(first["cwnd_gain"]),
        "first_pacing_gain": repr(first["pacing_gain"]),
        "start": "\n".join(f"  row.{column} = {'NAN' if np.isnan(x) else repr(x)};" for column, x in start.items()),
    }


def _elementary(code: str) -> str:
    """Return the functions of `elementary.h` that code calls, and those that they call, in their order."""
    kept: list[str] = []
    for block in reversed(_own_names(_ELEMENTARY_CODE).split("\n\n")):
        names = re.findall(r"^(?:static inline \S+|\}) (\S+?)[(;]", block, re.MULTILINE)
        if any(re.search(rf"{re.escape(name)}\b", code) for name in names):
            kept.insert(0, block)
            code += block
    return "\n\n".join(kept)


def _own_names(code: str) -> str:
    """Return code in which names of `elementary.h` are the header's: `Log2Parts` is `${p}_log2_parts`."""
    names = ["Twofold", *re.findall(r"^static inline \w+ (\w+)", _ELEMENTARY_CODE, re.MULTILINE)]
    return re.sub(
        rf"\b({'|'.join(names)})\b",
        lambda match: "${p}_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", match[0]).lower(),
        code,
    )


def _formula(feature: Feature) -> str:
    parameters, body = _own_names(feature.code).split(" { ")
    function = _wrapped(f"static inline double ${{p}}_{feature.name}{parameters} {{", 4)
    return f"/* {_wrapped(feature.meaning, 3)} */\n{function}\n  {body.removesuffix(' }')}\n}}"


def _value(feature: Feature) -> str:
    arguments = (
        f"state->{column.removeprefix('steered_')}" if column in _OF_STATE else f"row->{column}"
        for column in feature.columns
    )
    value = f"${{p}}_{feature.name}({', '.join(arguments)})"
    return f"${{p}}_feature({value}, {feature.low!r}, {feature.high!r}, {feature.neutral!r})"


def _weights(network: Network) -> Iterator[str]:
    for name, array in network.to_arrays().items():
        numbers = [_number(weight) for weight in array.T.ravel()]
        lines = "".join(f"  {', '.join(numbers[i : i + 8])},\n" for i in range(0, len(numbers), 8))
        yield f"static const float ${{p}}_{name.replace('.', '_')}[{array.size}] = {{\n{lines}}};"


def _act(network: Network) -> Iterator[str]:
    x, inputs = "state->observation", network.inputs
    for i, (_, of_state, _) in enumerate(network.lstm):
        width = of_state.shape[1]
        yield f"float gates_{i}[{4 * width}];"
        yield f"memcpy(gates_{i}, ${{p}}_lstm_{i}_bias, sizeof ${{p}}_lstm_{i}_bias);"
        yield f"${{p}}_add_product(${{p}}_lstm_{i}_input, {x}, {inputs}, gates_{i}, {4 * width});"
        yield f"${{p}}_add_product(${{p}}_lstm_{i}_state, state->hidden_{i}, {width}, gates_{i}, {4 * width});"
        yield f"${{p}}_lstm(gates_{i}, state->hidden_{i}, state->cell_{i}, {width});"
        x, inputs = f"state->hidden_{i}", width
    for i, (_, bias) in enumerate(network.layers):
        is_last, outputs = i == len(network.layers) - 1, len(bias)
        y = "action" if is_last else f"layer_{i}"
        if not is_last:
            yield f"float {y}[{outputs}];"
        yield f"memcpy({y}, ${{p}}_layer_{i}_bias, sizeof ${{p}}_layer_{i}_bias);"
        yield f"${{p}}_add_product(${{p}}_layer_{i}_weight, {x}, {inputs}, {y}, {outputs});"
        if is_last and network.skip is not None:
            yield f"${{p}}_add_product(${{p}}_skip_weight, state->observation, {network.inputs}, {y}, {outputs});"
        yield f"${{p}}_{network.output if is_last else network.activation}_all({y}, {outputs});"
        x, inputs = y, outputs


def _functions(network: Network) -> Iterator[str]:
    used = {network.output}
    if len(network.layers) > 1:
        used.add(network.activation)
    if network.lstm:
        yield _LSTM
    values = {
        "tanh": "${p}_tanh(y[i])",
        "relu": "y[i] < 0.0f ? 0.0f : y[i]",
        "clip": "(float)${p}_clamp(y[i], -1.0, 1.0)",
    }
    for name in sorted(used):
        yield (
            f"static inline void ${{p}}_{name}_all(float *y, int count) {{\n"
            f"  for (int i = 0; i < count; ++i) y[i] = {values[name]};\n}}"
        )


def _number(value: np.float32) -> str:
    """Return the shortest text that is this number in single precision."""
    return f"{value!s}f"


def _wrapped(text: str, by: int) -> str:
    """Return text in lines, all but the first indented."""
    return "\n".join(wrap(text, _WIDTH, subsequent_indent=" " * by, break_on_hyphens=False))


def _harmless(text: str) -> str:
    """Return text that neither ends a comment nor begins another."""
    return text.replace("*/", "* /").replace("/*", "/ *")


_LSTM: Final = """\
static inline float ${p}_sigmoid(float x) { return 0.5f * (${p}_tanh(0.5f * x) + 1.0f); }

/* Update the state of an LSTM layer; gates in the order input, forget, cell, output. */
static inline void ${p}_lstm(const float *gates, float *hidden, float *cell, int width) {
  for (int i = 0; i < width; ++i) {
    cell[i] = ${p}_sigmoid(gates[width + i]) * cell[i] + ${p}_sigmoid(gates[i]) * ${p}_tanh(gates[2 * width + i]);
    hidden[i] = ${p}_sigmoid(gates[3 * width + i]) * ${p}_tanh(cell[i]);
  }
}"""

_PREFERENCE: Final = """
  /* From 0, the least delay, to 1, its share beside rivals that fill the buffer. Set it after ${p}_reset. */
  double preference;"""

_CWND_GAIN_IN_PACKETS: Final = """\
/* What an action for cwnd_gain means: packets above one BDP. */
static inline double ${p}_cwnd_gain(float action, double bdp_packets) {
  const double packets = ${p}_sinh(%r * (double)action);
  const double gain = isnan(bdp_packets) ? 1.0 : 1.0 + packets / (bdp_packets < %r ? %r : bdp_packets);
  return ${p}_clamp(gain, %s);
}

"""
