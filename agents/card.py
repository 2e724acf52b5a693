"""What a policy's own file says about it: the facts of its model card, of ONNX metadata and of C headers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from bbrgym.agents.certificates import REFUTED, certify, default_properties
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import Network, StoredPolicy
from bbrgym.envs.observation import PREFERENCE
from bbrgym.envs.scenario import Scenario

_NAMES: Final = {
    "algorithm": "learner",
    "steps": "decisions in training",
    "reward": "reward per step in the last evaluation",
    "made_with": "made with",
}
"""What entries of `StoredPolicy.training` are called; the others keep their names."""

TRAINED_IN: Final = {
    "scenario": "training distribution",
    "reward": "reward in training",
    "engine": "engine in training",
}
"""What groups of `StoredPolicy.spec` are called that say where a policy comes from, and not how it works."""

GIVEN: Final = "given"
"""The entry of an imported policy's `StoredPolicy.training` with those of `TRAINED_IN` that its import was given. What
`spec` has of the others only makes the policy load and be judged."""

_MOST_BOXES: Final = 1000
_WEIGHTS: Final = 1e5
"""Of all boxes of a property: their number is such that a certificate takes a third of a second, whatever the size of
the network."""


def facts(policy: StoredPolicy) -> dict[str, str]:
    """Return what a policy's file says, by name, in the order of a model card; what it lacks is left out.

    The training distribution is given by the SHA-256 of the scenario without its defaults, as JSON with sorted keys and
    no spaces: it stays the same when scenarios get new fields. Of an imported policy, `TRAINED_IN` is unknown but for
    what its import was given.
    """
    training = {name: value for name, value in policy.training.items() if value is not None and name != GIVEN}
    observation, env = policy.spec["observation"], policy.spec["env"]
    steps = "step" if observation["history"] == 1 else f"{observation['history']} steps"
    return {
        **{_NAMES.get(name, name): _text(value) for name, value in training.items()},
        **_trained_in(policy),
        "observation": f"{', '.join(observation['features'])}; of the last {steps}",
        "action": _text(policy.spec["action"]),
        "step": f"{env['step_ms']:g} ms" if env["step_ms"] else f"{env['step_rtts']:g} min_rtt",
        "network": describe_network(policy.network),
        **_certificates(policy),
        "content hash": policy.content_hash,
    }


def _trained_in(policy: StoredPolicy) -> dict[str, str]:
    spec, imported, given = policy.spec, policy.training.get("imported"), policy.training.get(GIVEN)
    known = given if isinstance(given, list | tuple) else ()
    describe: dict[str, Callable[[Any], str]] = {
        "scenario": _distribution,
        "reward": lambda reward: _text(reward["terms"]),
        "engine": lambda engine: _text(engine["name"]),
    }
    found = {}
    for group, name in TRAINED_IN.items():
        if imported is not None and group not in known:
            found[name] = f"unknown (imported from {_text(imported)})"
        elif group in spec:
            found[name] = describe[group](spec[group])
    return found


def _distribution(plain: Mapping[str, Any]) -> str:
    defaults = {field.name: field.default for field in dataclasses.fields(Scenario)}
    given = {name: value for name, value in plain.items() if value not in (None, [], defaults.get(name))}
    scenario = json.dumps(given, sort_keys=True, separators=(",", ":"))
    return f"SHA-256 {hashlib.sha256(scenario.encode()).hexdigest()}"


def _certificates(policy: StoredPolicy) -> dict[str, str]:
    """Return the usual properties of a policy by their verdicts, and what refutes those that are (`bbrgym certify`)."""
    preference = registry.defaults("policy")[PREFERENCE]
    largest = max(weight.size for weight, _ in policy.network.layers)
    boxes = max(1, min(_MOST_BOXES, int(_WEIGHTS / largest)))
    found: dict[str, list[str]] = {}
    for asked in default_properties(policy):
        try:
            one = certify(policy, asked, preference=preference, boxes=boxes)
        except ValueError as error:  # its numbers overflow
            return {"proved": f"nothing: {error}"}
        example = ", ".join(f"{name} {value:.4g}" for name, value in one.example.items())
        text = f"{one.stated} (on {example or 'neutral features'})" if one.verdict == REFUTED else str(one.stated)
        found.setdefault(one.verdict, []).append(text)
    where = f"whatever it observes, at preference {preference:g}"
    return {verdict: f"{'; '.join(texts)}; {where}" for verdict, texts in found.items()}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(entry)}" for name, entry in value.items() if entry is not None)
    if isinstance(value, list | tuple):
        return " to ".join(map(_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def describe_network(network: Network) -> str:
    """Return the shape of a network in words: its inputs, layers, outputs and number of weights."""
    layers = [f"LSTM {of_state.shape[1]}" for _, of_state, _ in network.lstm]
    layers += [f"{len(bias)} {network.activation}" for _, bias in network.layers[:-1]]
    last = "bounded by tanh" if network.output == "tanh" else "clipped to [-1, 1]"
    if network.skip is not None:
        last += ", with a skip from the inputs"
    weights = sum(array.size for array in network.to_arrays().values())
    return f"{network.inputs} inputs, {''.join(f'{layer}, ' for layer in layers)}2 outputs {last}; {weights:,} weights"
