"""The WebAssembly module beside native, and the page in Chromium. Both are built by `make playground`."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import yaml
from random_scenarios import random_scenario

from bbrgym import Flow, Scenario, controllers, simulate
from bbrgym.baselines.policy_file import policy_bytes
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.sharing import Sharing
from bbrgym.envs.trace_file import save_trace
from bbrgym.lab import PAGE
from studies import playground

MODULE = PAGE / "bbrgym.wasm"
DATA = playground.data()
PRESETS = {preset["name"]: preset for preset in DATA["presets"]}

pytestmark = pytest.mark.skipif(not MODULE.is_file(), reason="build/playground is missing: `make playground` builds it")


@pytest.fixture(scope="module")
def engine() -> Any:
    pytest.importorskip("wasmtime", reason="wasmtime is missing: `make playground` installs it")
    from wasm_engine import WasmEngine

    return WasmEngine(MODULE, {"reference": policy_bytes(None), "linear": policy_bytes(playground.LINEAR)})


def plain_of(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as the page gives it: policies have names."""
    plain = scenario.to_dict()
    for flow in plain["flows"]:
        if flow["algorithm"] == "policy":
            flow["policy"] = "linear" if flow.get("policy") else "reference"
    return plain


def assert_equal(engine: Any, scenario: Scenario, seed: int) -> None:
    trace = simulate(scenario, engine="native", seed=seed)
    times, flows, link = zip(*engine.run(plain_of(scenario), seed), strict=True)
    npt.assert_array_equal(times, trace.time_s)
    npt.assert_array_equal(np.stack(flows), trace.flows)
    npt.assert_array_equal(np.stack(link), trace.link)


def test_columns_and_algorithms_are_those_of_python(engine: Any) -> None:
    assert engine.names() == [list(FLOW_COLUMNS), list(LINK_COLUMNS), list(controllers())]


@pytest.mark.parametrize("algorithm", controllers())
def test_rows_of_each_algorithm_equal_native(engine: Any, algorithm: str) -> None:
    path = {"jitter_ms": 1.0, "ecn": "l4s" if algorithm == "prague" else None}
    scenario = Scenario(rate_mbps=20, buffer_bdp=1, loss=0.001, duration_s=12,
                        flows=(Flow(algorithm, rtt_ms=30), Flow(algorithm, rtt_ms=60, start_s=1, **path)))  # fmt: skip
    assert_equal(engine, scenario, seed=42)


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_random_scenarios_equal_native(engine: Any, seed: int) -> None:
    assert_equal(engine, random_scenario(random.Random(seed)), seed)


@pytest.mark.parametrize("name", PRESETS)
def test_rows_of_presets_equal_native(engine: Any, name: str) -> None:
    plain = PRESETS[name]["scenario"] | {"duration_s": 10}
    for flow in plain["flows"]:
        if flow.get("policy") == "linear":
            flow = flow | {"policy": str(playground.LINEAR)}
    assert_equal(engine, linear_by_path(plain), seed=1)


def linear_by_path(plain: dict[str, Any]) -> Scenario:
    flows = [
        flow | ({"policy": str(playground.LINEAR)} if flow.get("policy") == "linear" else {}) for flow in plain["flows"]
    ]
    return Scenario.from_dict(plain | {"flows": flows})


def test_a_rate_changed_while_it_runs_equals_a_schedule(engine: Any) -> None:
    base = Scenario(rate_mbps=20, duration_s=10, flows=(Flow("bbr"), Flow("cubic", start_s=1))).to_dict()
    changed = base | {"rate_schedule": [[3.000001, 5.0]]}
    live = list(engine.run(base, 1, changes={30: changed}))
    for one, other in zip(live, engine.run(changed, 1), strict=True):
        npt.assert_array_equal(one[1], other[1])
        npt.assert_array_equal(one[2], other[2])


def test_jitter_and_loss_take_effect_while_it_runs(engine: Any) -> None:
    base = Scenario(rate_mbps=20, duration_s=10, flows=(Flow("bbr"), Flow("bbr"))).to_dict()
    changed = base | {"loss": 0.05, "flows": [base["flows"][0] | {"jitter_ms": 40.0}, base["flows"][1]]}
    rows = list(engine.run(base, 1, changes={50: changed}))
    lost = np.array([link[LINK_COLUMNS.index("random_losses")] for _, _, link in rows])
    jitter = np.array([flows[:, FLOW_COLUMNS.index("rtt_jitter_ms")] for _, flows, _ in rows])
    assert lost[:50].sum() == 0 < lost[50:].sum()
    assert np.nanmean(jitter[60:, 0]) > 5 * np.nanmean(jitter[60:, 1])


@pytest.mark.parametrize(
    ("damage", "message"),
    [({"rate": 1}, "rate"), ({"queue": "red"}, "known: droptail"), ({"flows": []}, "at least one flow")],
)
def test_what_is_no_scenario_traps(engine: Any, damage: dict[str, Any], message: str, capfd: Any) -> None:
    import wasmtime
    from wasm_engine import WasmEngine

    with pytest.raises(wasmtime.Trap):
        list(WasmEngine(MODULE, {}).run(Scenario().to_dict() | damage, 1))
