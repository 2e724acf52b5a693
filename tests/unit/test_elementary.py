"""The same bits on every machine: our own elementary functions (baselines/cc/elementary.h), and nothing of libm's."""

import ctypes
import hashlib
import importlib.util
import itertools
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from random_scenarios import random_scenario

from bbrgym import Flow, Scenario, make_engine, simulate
from bbrgym import _controllers as cc
from bbrgym.baselines.policy_file import CWND_SCALES
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.observation import FEATURES, Observation, tabulate
from bbrgym.envs.reward import CONDITIONS, TERMS, Reward, RewardContext, conditions_of
from bbrgym.envs.workload import MEAN_BYTES, SIZES

LN2 = Decimal(2).ln()
EXACT: dict[str, Callable[[Decimal], Decimal]] = {
    "log": lambda x: x.ln(),
    "log2": lambda x: x.ln() / LN2,
    "log10": lambda x: x.log10(),
    "exp": lambda x: x.exp(),
    "exp2": lambda x: (x * LN2).exp(),
    "cbrt": lambda x: (x.ln() / 3).exp(),
    "sinh": lambda x: (x.exp() - (-x).exp()) / 2,
    "asinh": lambda x: (x + (x * x + 1).sqrt()).ln(),
}


def ulps(found: float, exact: Decimal) -> float:
    """Return the error in units in the last place."""
    return float(abs(Decimal(found) - exact) / Decimal(math.ulp(float(exact))))


@pytest.mark.parametrize("name", EXACT)
def test_errors_are_below_a_unit_in_the_last_place(name: str) -> None:
    rng = random.Random(1)
    near_one = [1 + rng.uniform(-1, 1) * 2.0 ** rng.uniform(-40, -1) for _ in range(500)]
    near_zero = [rng.choice([-1, 1]) * 2.0 ** rng.uniform(-50, 1) for _ in range(500)]
    positive = [2.0 ** rng.uniform(-1070, 1023) for _ in range(500)]
    points = {
        **dict.fromkeys(("log", "log2", "log10", "cbrt"), near_one + positive),
        "exp": near_zero + [rng.uniform(-700, 709) for _ in range(500)],
        "exp2": near_zero + [rng.uniform(-1021, 1023) for _ in range(500)],
        "sinh": near_zero + [rng.uniform(-9, 9) for _ in range(500)],
        "asinh": near_zero + [rng.uniform(-1500, 1500) for _ in range(500)],
    }[name]
    with localcontext(prec=60):
        worst = max(ulps(getattr(cc, name)(x), EXACT[name](Decimal(x))) for x in points if x != 1)
    assert 0.4 < worst < (2 if name == "asinh" else 1)


def test_errors_of_powers() -> None:
    rng = random.Random(1)
    points = [(rng.uniform(0.01, 100), rng.uniform(-1, 1)) for _ in range(500)]
    points += [(2.0 ** rng.uniform(-1000, 1000), rng.uniform(-0.2, 0.2)) for _ in range(500)]
    with localcontext(prec=60):
        worst = max(ulps(cc.pow(x, y), (Decimal(x).ln() * Decimal(y)).exp()) for x, y in points)
    assert 0.4 < worst < 2


def test_exact_and_special_values() -> None:
    for exponent in (-1074, -1023, -1022, -3, 0, 1, 52, 1023):
        power = math.ldexp(1, exponent)
        assert (cc.log2(power), cc.exp2(exponent), cc.pow(2, exponent)) == (exponent, power, power)
    for logarithm in (cc.log, cc.log2, cc.log10):
        assert (logarithm(0), logarithm(math.inf), logarithm(1)) == (-math.inf, math.inf, 0)
        assert math.isnan(logarithm(-1))
        assert math.isnan(logarithm(math.nan))
    assert (cc.exp2(1024), cc.exp(710), cc.exp2(-1080), cc.exp(-800)) == (math.inf, math.inf, 0, 0)
    assert (cc.pow(0, 0.3), cc.pow(3, 0), cc.cbrt(0), cc.cbrt(27), cc.sinh(0), cc.asinh(0)) == (0, 1, 0, 3, 0, 0)
    for undefined in (cc.exp(math.nan), cc.sinh(math.nan), cc.pow(math.nan, 2), cc.pow(2, math.nan), cc.pow(-1, 2)):
        assert math.isnan(undefined)
    assert (cc.sinh(-2), cc.asinh(-2)) == (-cc.sinh(2), -cc.asinh(2))


ROUNDING = {"ceil", "floor", "fmax", "fmin", "modf", "modfl", "nearbyint", "rint", "round", "sqrt", "trunc"}
"""Functions whose result IEEE 754 defines to the last bit."""


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no `nm`")
@pytest.mark.parametrize("module", ["_controllers", "_native", "_linux", "_ns3"])
def test_extensions_take_from_libm_what_is_exact(module: str) -> None:
    spec = importlib.util.find_spec(f"bbrgym.{module}")
    if spec is None:
        pytest.skip("bbrgym was built without ns-3")

    def symbols(kind: str, library: str) -> set[str]:
        listed = subprocess.run(["nm", "-D", kind, library], capture_output=True, text=True, check=True, timeout=60)
        return set(re.findall(r" [a-zA-Z] (\w+)", listed.stdout))

    ctypes.CDLL("libm.so.6")
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    (libm,) = set(re.findall(r"\S*/libm[.-]\S*", maps))
    of_libm = symbols("--defined-only", libm)
    assert {"exp", "pow", "sinh"} < of_libm
    assert symbols("--undefined-only", str(spec.origin)) & of_libm <= ROUNDING


def fingerprint() -> str:
    """Return a hash of decisions, gains, observations, rewards, drawn scenarios and runs."""
    digest = hashlib.sha256()

    def add(*values: object) -> None:
        for value in values:
            digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())

    rng = np.random.default_rng(1)
    flows = rng.uniform(0.5, 20, (2_000, 1, len(FLOW_COLUMNS)))
    link = rng.uniform(0.5, 20, (2_000, len(LINK_COLUMNS)))
    conditions = rng.uniform(0.5, 2, (2_000, len(CONDITIONS)))
    actions = rng.uniform(-1, 1, (2_000, 2))
    gains = cc.GainMap((0.25, 64.0), (0.8, 1.1), CWND_SCALES.index("packets")).gains(actions, flows[:, 0, 0])
    add(gains, cc.GainMap((0.25, 64.0), (0.8, 1.1), CWND_SCALES.index("ratio")).actions(gains, flows[:, 0, 0]))
    add(Observation(tuple(FEATURES)).evaluate(tabulate(flows[:, 0], gains)))
    context = RewardContext(flows, link, np.zeros(2_000, np.int64), conditions)
    add(*(Reward({term: 1.0}).evaluate(context) for term in TERMS))
    drawn = Distribution.from_dict({"rate_mbps": {"log_uniform": [2, 200]}, "flows": [{"algorithm": "agent"}]})
    scenarios = [drawn.sample(rng) for _ in range(300)]
    add(*(scenario.digest for scenario in scenarios), conditions_of(scenarios[0], [0]))
    for seed, sizes in itertools.product(range(10), SIZES):
        given = {"mean_bytes": 5000} if sizes not in MEAN_BYTES else {}
        given |= {"shape": 1.5} if sizes == "pareto" else {}
        workload = {"arrivals_per_s": 30, "sizes": sizes, "seed": seed, "flow": {"algorithm": "cubic"}, **given}
        add(Scenario.from_dict({"duration_s": 30, "workload": workload}).digest)
    engine = make_engine("native")
    both = [Scenario(rate_mbps=9, duration_s=6, flows=(Flow(name), Flow("vivace"))) for name in cc.controllers()]
    add(*(simulate(scenario, engine, 1).hash for scenario in both))
    add(*(simulate(random_scenario(random.Random(seed)), engine, 1).hash for seed in range(20)))
    return digest.hexdigest()


def test_results_do_not_depend_on_the_instructions_of_the_processor() -> None:
    """The C library's functions do: without fused multiply-add they give other last bits."""
    code = "import math, test_elementary as t; print(t.fingerprint())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GLIBC_TUNABLES": tunables},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for tunables in ("", "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX2_Usable,-FMA_Usable")
    }
    assert len(found) == 1
