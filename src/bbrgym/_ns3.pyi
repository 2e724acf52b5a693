"""
One shared bottleneck in ns-3 (C++). Process-wide state: one Simulation a process.
"""

class Simulation:
    """One scenario in ns-3, stepped by duration."""

    def __init__(self, transport: str = "tcp", access_mbps: float = 1000.0) -> None:
        """
        All flows over one of `transports()`; links but the bottleneck have this rate, or ten times the bottleneck's. Raises ValueError for another transport.
        """

    def reset(self, scenario: dict[str, object], seed: int) -> None:
        """
        Start `Scenario.to_dict()` at time 0. Raises ValueError for what cannot be simulated.
        """

    def steer(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent's flow. Raises IndexError or ValueError."""

    def step(self, duration_ns: int) -> None:
        """Simulate so much more, or to the scenario's end. The GIL is released."""

    def rows(self) -> list[float]:
        """
        [time_s, is_over, is_complete, *LINK_COLUMNS, *FLOW_COLUMNS of flow 0, ...] of the last step.
        """

def use_fast_scoreboard(is_fast: bool) -> None:
    """
    Whether look-ups in ns-3's list of sent packets take the short way; results are the same.
    """

def transports() -> list[str]:
    """What flows can run over."""

def stock_algorithms() -> list[str]:
    """The congestion controls of ns-3 itself."""

def scenario_defaults() -> dict[str, object]:
    """The fields of a scenario, in order."""

def flow_defaults() -> dict[str, object]:
    """The fields of a flow, in order."""

def queue_packets(scenario: dict[str, object]) -> int:
    """The buffer of a scenario in packets."""
