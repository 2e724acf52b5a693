"""
One shared bottleneck in ns-3 (C++). Its state is global: one Simulation per process.
"""

class Simulation:
    """One scenario in ns-3, stepped by duration."""

    def __init__(self, transport: str = "tcp", access_mbps: float = 1000.0) -> None:
        """
        The transport is `tcp` or `quic`, for all flows. Links other than the bottleneck have this rate, or ten times the bottleneck's if that is more. Raises ValueError for another transport.
        """

    def reset(self, scenario: dict[str, object], seed: int) -> None:
        """
        Start `Scenario.to_dict()` at time 0. Raises ValueError for what cannot be simulated.
        """

    def set_gains(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent's flow. Raises IndexError or ValueError."""

    def step(self, duration_ns: int) -> None:
        """Simulate for a duration, or to the scenario's end. Releases the GIL."""

    def rows(self) -> list[float]:
        """
        [time_s, is_over, is_complete, *LINK_COLUMNS, *FLOW_COLUMNS of flow 0, ...] of the last step.
        """

def use_fast_scoreboard(is_fast: bool) -> None:
    """
    Choose between our short look-ups in ns-3's list of sent packets and its own; the results are the same.
    """
