"""
One shared bottleneck on this machine's kernel, in real time, and flows between two machines (C++).
"""

class Simulation:
    """One scenario in real time, stepped by duration."""

    def __init__(self, agent_file: str) -> None:
        """
        Make it while this process has one thread: it may need a user namespace. Raises RuntimeError if this machine does not let it make what it needs.
        """

    def reset(self, scenario: dict[str, object], seed: int) -> None:
        """
        Start `Scenario.to_dict()` now. Raises ValueError for what cannot run here.
        """

    def set_gains(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent's flow. Raises IndexError or ValueError."""

    def step(self, duration_ns: int) -> None:
        """Wait for the end of the step. Releases the GIL."""

    def rows(self) -> list[float]:
        """
        Return [time_s, is_over, is_complete, *LINK_COLUMNS, *FLOW_COLUMNS of flow 0, ...] of the last step.
        """

    def timing(self) -> dict[str, float]:
        """
        Return how late packets, decisions and steps were since the episode began, in ms.
        """

class UdpSender:
    """
    The sending end of a flow over UDP (docs/wire.md). For one thread at a time.
    """

    def __init__(self, socket: int, flow: dict[str, object], packet_bytes: int, seed: int) -> None:
        """
        `socket` is the descriptor of a connected UDP socket that does not block; it is closed with this object. `flow` is one of `Scenario.to_dict()`, its policy as bytes. Raises ValueError.
        """

    def wait(self, duration_ns: int) -> None:
        """
        Send and receive for this long, or until the phase changes or all is acknowledged; at least once.
        """

    def finish(self) -> None:
        """Send no more data, and ask for the receiver's report."""

    def row(self) -> list[float]:
        """
        Return [time_s, *FLOW_COLUMNS] of an open flow, since the last call. What the receiver has is what it acknowledged.
        """

    @property
    def phase(self) -> str:
        """
        'connecting', 'open', 'ending' (waits for the report), 'over', or 'busy': the receiver has another sender.
        """

    @property
    def time_s(self) -> float:
        """Time since this object was made, in s."""

    @property
    def opened_s(self) -> float:
        """When the handshake ended and the first row began, in s."""

    @property
    def is_all_delivered(self) -> bool: ...
    @property
    def silence_s(self) -> float:
        """For how long nothing was heard of the receiver, in s."""

    @property
    def report(self) -> dict[str, int] | None:
        """What the receiver says that has arrived; None until then."""

    @property
    def refused(self) -> int:
        """
        Datagrams that were no part of the flow, or that the kernel did not take.
        """

    @property
    def error(self) -> str:
        """The last error of the socket in words; empty without one."""

class UdpReceiver:
    """
    The receiving end of flows over UDP, one at a time (docs/wire.md). For one thread at a time.
    """

    def __init__(self, socket: int, key: tuple[int, int], silence_limit_ns: int) -> None:
        """
        `socket` is the descriptor of a bound UDP socket that does not block; it is closed with this object. `key` makes the tokens that prove addresses. A sender that is silent for the limit is gone.
        """

    def wait(self, duration_ns: int) -> None:
        """
        Receive and acknowledge for this long, or until the phase changes; at least once.
        """

    def release(self) -> None:
        """Forget the sender, so that another is served."""

    @property
    def phase(self) -> str:
        """
        'waiting', 'receiving', 'reported' (the sender has ended, and may ask for the report again) or 'over'.
        """

    @property
    def time_s(self) -> float:
        """Time since this object was made, in s."""

    @property
    def sender(self) -> str:
        """HOST:PORT of the sender."""

    @property
    def report(self) -> dict[str, int]:
        """What has arrived of the flow."""

    @property
    def sent(self) -> tuple[int, int] | None:
        """
        (packets, bytes) that the sender says it has sent; None until it has ended.
        """

    @property
    def refused(self) -> int:
        """Datagrams that were no part of a flow."""

def fixed_policy(policy: bytes, preference: float = 0.25) -> bytes:
    """
    Return a policy in integers, as `struct fixed_policy` of fixed_policy.h. Raises ValueError.
    """

class SteeredSocket:
    """A TCP socket whose gains come from an agent or a policy."""

    def __init__(self, socket: int, flow: dict[str, object], agent_file: str) -> None:
        """
        `socket` is the descriptor of a TCP socket before it connects, and stays the caller's; `flow` is one of `Scenario.to_dict()`, its policy as bytes. Raises ValueError, or RuntimeError if the kernel refuses.
        """

    def open(self) -> None:
        """Begin the first row: the socket is connected."""

    def row(self) -> list[float]:
        """
        Return [time_s, *FLOW_COLUMNS] since the last call. What the receiver has is what it acknowledged.
        """

    @property
    def totals(self) -> dict[str, int]:
        """What the receiver has acknowledged, as `UdpSender.report`."""

    @property
    def packet_bytes(self) -> int:
        """Payload of a full packet."""

    @property
    def time_s(self) -> float:
        """Time since this object was made, in s."""
