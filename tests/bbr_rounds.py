"""Rounds of ACKs made by hand for the BBRs that have BBRv2's phases."""

from collections.abc import Callable, Mapping
from typing import Any

from ack_path import PACKET, Hand, make

STARTUP, DRAIN, PROBE_BW, PROBE_RTT = range(4)
"""Values of the metric `mode`."""
UP, DOWN, CRUISE, REFILL = range(4)
"""Values of the metric `cycle_index`."""
WITHOUT_PROBE_RTT = {"probe_rtt_interval_s": 1000.0}


class Rounds(Hand):
    """A BBR on 10 Mbit/s and 40 ms (BDP 51 packets), with rounds made by hand after some time.

    Args:
        name: of the algorithm.
        until_phase: of ProbeBW, with which it begins; None if it begins after `time_ms`.
        time_ms: on the path.
        parameters: of the algorithm.
    """

    def __init__(self, name: str, until_phase: int | None = None, time_ms: float = 1500, **parameters: float) -> None:
        super().__init__(make(name, **parameters), time_ms)
        if until_phase is not None:
            self.until(until_phase)

    @property
    def phase(self) -> float:
        return self.metrics["cycle_index"]

    def round(
        self,
        in_flight: int = 45,
        lost: int = 0,
        lost_at: int = -1,
        tx_in_flight: int = 60,
        rate_mbps: float = 9.6,
        acks: int = 10,
        middle: Mapping[str, float] | None = None,
        is_limited: Callable[[int], bool] = lambda i: True,
        is_app_limited: bool = False,
        round_ms: float = 40,
        marked: int = 0,
    ) -> None:
        """Play a round of ACKs; one of them marks the lost packets, also in its sample.

        Args:
            in_flight: packets in flight, before and after each ACK.
            lost: packets.
            lost_at: which ACK marks them; the last one by default.
            tx_in_flight: packets, in each sample.
            rate_mbps: the delivery rate of each sample.
            acks: how many.
            middle: fields that the sample in the middle has instead.
            is_limited: whether the window limits the flow at the i-th ACK.
            is_app_limited: whether the application limited what is acknowledged.
            round_ms: how long it takes.
            marked: how many of the last ACKs report a CE mark; each sample has their share.
        """
        prior = self.delivered
        for i in range(acks):
            self.delivered += PACKET
            lost_now = lost if i == lost_at % acks else 0
            sample = {
                "delivery_rate": int(rate_mbps * 1e6),
                "delivered": 40 * PACKET,
                "prior_delivered": prior,
                "tx_in_flight": tx_in_flight * PACKET,
                "lost_since_send": lost_now * PACKET,
                "is_app_limited": is_app_limited,
                "marked_since_send": 40 * PACKET * marked // acks,
                **(middle if middle and i == acks // 2 else {}),
            }
            self.ack(
                41,
                after_ms=round_ms / acks,
                lost=lost_now,
                in_flight=in_flight,
                prior_in_flight=in_flight * PACKET,
                delivered=self.delivered,
                is_cwnd_limited=is_limited(i),
                bytes_marked=PACKET if i >= acks - marked else 0,
                sample=sample,
            )

    def until(self, phase: int, limit: int = 400, **of_round: Any) -> int:
        """Play rounds until the phase begins, and return how many; little is in flight, so that Down ends at once."""
        for count in range(limit):
            if self.phase == phase:
                return count
            self.round(**of_round)
        raise AssertionError(f"phase {phase} does not begin; the phase is {self.phase}")
