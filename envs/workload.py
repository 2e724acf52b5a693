"""Workloads: finite flows that arrive at random, as a mapping in a scenario (docs/scenarios.md#workloads)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym.checks import check_integer, check_keys, check_name, check_number

KEYS: Final = ("load", "arrivals_per_s", "sizes", "mean_bytes", "shape", "start_s", "stop_s", "seed", "flow")

WEB_SEARCH: Final = (
    (0, 0.0), (10_000, 0.15), (20_000, 0.2), (30_000, 0.3), (50_000, 0.4), (80_000, 0.53), (200_000, 0.6),
    (1_000_000, 0.7), (2_000_000, 0.8), (5_000_000, 0.9), (10_000_000, 0.97), (30_000_000, 1.0),
)  # fmt: skip
"""Sizes in bytes and shares of the flows that are not larger, linear in between: the background flows of a web search
cluster (Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, figure 4), as later papers (PIAS, NSDI 2015; HPCC,
SIGCOMM 2019) tabulate them."""

WEB_PAGE: Final = (10_710, 25_032, 100, 2_000_000)
"""The main object (the HTML file) of a web page: mean and standard deviation in bytes of a log-normal distribution, and
the limits outside of which it is drawn anew (3GPP2-TSGC5, "HTTP, FTP and TCP models for 1xEV-DV simulations", 2001), in
the values of ns-3's ThreeGppHttpVariables."""

MEAN_BYTES: Final = {"web-page": 10_734, "web-search": 1_711_250}
"""Mean sizes of the published distributions; that of web pages within their limits."""

SIZES: Final = ("fixed", "pareto", *MEAN_BYTES)
"""Names of the distributions of sizes."""

_LARGEST_BYTES: Final = 2**52
"""A Pareto distribution has no largest value, a flow's size has."""


def flows_from_config(
    config: Mapping[str, Any], rate_mbps: float, duration_s: float, packet_bytes: int, header_bytes: int, most: int
) -> list[dict[str, Any]]:
    """Return the flows of a workload, as plain mappings with `start_s` and `size_bytes`, in the order of their arrival.

    Arrivals are a Poisson process from `start_s` (0) to `stop_s` (the end of the scenario). Sizes are independent of
    each other and of the arrivals; both follow from `seed` (1). With another rate of arrivals or another duration, the
    n-th flow has the same size.

    Args:
        config: either `load` (offered load: the mean share of the link that the flows need, see `mean_wire_bytes`) or
            `arrivals_per_s`; `sizes`, one of `SIZES`; `mean_bytes` of `fixed` and `pareto`; `shape` of `pareto`, above
            1; `start_s`, `stop_s`, `seed`; `flow`, other fields that all of them have.
        rate_mbps: of the scenario.
        duration_s: of the scenario.
        packet_bytes: payload of a full packet, of the scenario.
        header_bytes: what a packet occupies on the link in addition to its payload.
        most: how many flows there may be.

    Raises:
        ValueError: naming the bad value and the good ones; or that there are more than `most` flows, and how many.
    """
    check_keys("workload", config, KEYS)
    sizes: Any = config.get("sizes")
    check_name("workload.sizes", sizes, SIZES)
    for name, users in (("mean_bytes", ("fixed", "pareto")), ("shape", ("pareto",))):
        if (config.get(name) is not None) != (sizes in users):
            raise ValueError(f"workload.{name} must be given with sizes {' or '.join(users)} only, got {config!r}")
    mean_bytes = MEAN_BYTES[sizes] if sizes in MEAN_BYTES else config["mean_bytes"]
    shape = config.get("shape")
    check_number("workload.mean_bytes", mean_bytes, at_least=1, at_most=1e12)
    check_number("workload.shape", shape, above=1, at_most=100, or_none=True)
    start_s, stop_s = config.get("start_s", 0.0), config.get("stop_s")
    check_number("workload.start_s", start_s, at_least=0, below=duration_s)
    check_number("workload.stop_s", stop_s, above=start_s, or_none=True)
    seed = check_integer("workload.seed", config.get("seed", 1), at_least=0)
    load: Any = config.get("load")
    arrivals_per_s: Any = config.get("arrivals_per_s")
    if (load is None) == (arrivals_per_s is None):
        raise ValueError(f"workload must have either load or arrivals_per_s, got {config!r}")
    check_number("workload.load", load, above=0, at_most=100, or_none=True)
    check_number("workload.arrivals_per_s", arrivals_per_s, above=0, at_most=1e6, or_none=True)
    if load is None:
        per_s = arrivals_per_s
    else:
        wire_bytes = mean_wire_bytes(
            sizes, mean_bytes=mean_bytes, shape=shape, packet_bytes=packet_bytes, header_bytes=header_bytes
        )
        per_s = load * rate_mbps * 1e6 / 8 / wire_bytes
    flow = {} if config.get("flow") is None else config["flow"]
    if not isinstance(flow, Mapping):
        raise ValueError(f"workload.flow must be a mapping of a flow's fields, got {flow!r}")
    for name in ("start_s", "stop_s", "size_bytes"):
        if name in flow:
            raise ValueError(f"workload.flow must not have {name}: the workload draws it, got {dict(flow)!r}")
    if flow.get("algorithm") == "agent":
        raise ValueError("workload.flow.algorithm must not be agent: the number of agents must not be random")

    of_arrivals, of_sizes = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    end_s = duration_s if stop_s is None else min(stop_s, duration_s)
    starts_s = start_s + np.cumsum(of_arrivals.exponential(size=most + 1)) / per_s
    if starts_s[-1] < end_s:
        raise ValueError(
            f"workload must have at most {most} flows, got about {per_s * (end_s - start_s):.0f}: "
            f"{per_s:.4g} per s for {end_s - start_s:g} s"
        )
    starts_s = starts_s[starts_s < end_s]
    drawn = draw_sizes(sizes, of_sizes.random(len(starts_s)), mean_bytes, shape)
    # In whole ns, as sizes are in whole bytes: the last bits of NumPy's draws are not the same on every processor.
    return [
        {**flow, "start_s": round(float(start), 9), "size_bytes": int(size)}
        for start, size in zip(starts_s, drawn, strict=True)
    ]


def mean_wire_bytes(sizes: str, mean_bytes: float, shape: float | None, packet_bytes: int, header_bytes: int) -> float:
    """Return the mean bytes of a flow on the link: its payload, and the headers of its packets and of its handshake."""
    drawn = draw_sizes(sizes, (np.arange(1000) + 0.5) / 1000, mean_bytes, shape)
    # Unlike their sum, what the last packets lack of full ones does not depend on the few largest sizes.
    unfilled_bytes = float((-drawn % packet_bytes).mean())
    return mean_bytes + ((mean_bytes + unfilled_bytes) / packet_bytes + 1) * header_bytes


def draw_sizes(
    sizes: str, uniform: npt.NDArray[np.float64], mean_bytes: float, shape: float | None
) -> npt.NDArray[np.int64]:
    """Return the sizes in bytes, at least 1, that belong to uniform draws in [0, 1)."""
    if sizes == "web-search":
        table: Sequence[tuple[int, float]] = WEB_SEARCH
        drawn = np.interp(uniform, [share for _, share in table], [size for size, _ in table])
    elif sizes == "web-page":
        mean, deviation, least, most = WEB_PAGE
        variance = math.log(1 + (deviation / mean) ** 2)
        logarithm = NormalDist(math.log(mean) - variance / 2, math.sqrt(variance))
        low, high = (logarithm.cdf(math.log(limit)) for limit in (least, most))
        drawn = np.exp([logarithm.inv_cdf(low + (high - low) * share) for share in uniform])
    elif sizes == "pareto":
        assert shape is not None
        drawn = mean_bytes * (shape - 1) / shape * (1 - uniform) ** (-1 / shape)
    else:
        drawn = np.full(len(uniform), float(mean_bytes))
    return np.clip(np.rint(drawn), 1, _LARGEST_BYTES).astype(np.int64)
