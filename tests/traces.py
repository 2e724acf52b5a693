"""Episodes of engines in tests: their numbers as bytes, and the columns of a trace by name."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from bbrgym import Engine, Flow, Rows, Scenario, Trace
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS

SCENARIO = Scenario(rate_mbps=6, duration_s=2.0, loss=0.001, flows=(Flow("agent", rtt_ms=20), Flow("bbr", rtt_ms=20)))


def run(
    engine: Engine,
    seed: int = 1,
    scenario: Scenario = SCENARIO,
    gains: tuple[float, float] | None = None,
    step_ms: float = 100,
) -> bytes:
    """Return all numbers of an episode."""
    rows = engine.reset(scenario, seed)
    numbers = [as_bytes(rows)]
    while not rows.is_over:
        if gains is not None:
            engine.steer(0, *gains)
        rows = engine.step(step_ms)
        numbers.append(as_bytes(rows))
    return b"".join(numbers)


def as_bytes(rows: Rows) -> bytes:
    return np.concatenate([[rows.time_s], rows.link, rows.flows.ravel()]).tobytes()


def flow_column(trace: Trace, name: str) -> npt.NDArray[np.float64]:
    """Return a column of all flows, of shape (steps, flows)."""
    return trace.flows[:, :, FLOW_COLUMNS.index(name)]


def link_column(trace: Trace, name: str) -> npt.NDArray[np.float64]:
    """Return a column of the link, of shape (steps,)."""
    return trace.link[:, LINK_COLUMNS.index(name)]


def rows_of(trace: Trace, flow: int = 0) -> pd.DataFrame:
    """Return the rows of a flow by time, with the link's columns."""
    return trace.rows[trace.rows["flow"] == flow].set_index("time_s")
