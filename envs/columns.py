"""The columns of an engine's rows: names, units and meaning, in this one place.

A step of an engine gives one row a flow and one row for the link. A quantity that counts or averages does so over
the step; a state is the one at the end of the step. A value that does not exist (an RTT when no packet was
acknowledged, a metric that the controller does not have) is NaN. Packets are data packets of the scenario's
`packet_bytes`; rates of flows count payload, the link's utilisation counts bytes on the wire.
"""

from __future__ import annotations

from typing import Final

from bbrgym import _controllers

FLOW_MEASUREMENTS: Final[dict[str, str]] = {
    "is_active": "share of the step, 0 to 1, between the flow's start and its end (stop, all bytes delivered)",
    "sent_packets": "data packets sent in the step, retransmissions included",
    "delivered_packets": "packets newly acknowledged, cumulatively or selectively, in the step",
    "lost_packets": "packets newly marked lost by the sender in the step",
    "retransmitted_packets": "retransmissions sent in the step",
    "rto_count": "retransmission timeouts in the step",
    "received_bytes": "payload that reached the receiving application in order in the step",
    "arrived_bytes": "payload of all data packets that reached the receiver in the step, duplicates included",
    "inorder_bytes": "payload of those that the receiver expected next: a gap's end counts, what waited behind it not",
    "send_rate_mbps": "payload sent in the step over its duration, in Mbit/s",
    "delivery_rate_mbps": "payload acknowledged in the step over its duration, in Mbit/s",
    "throughput_mbps": "received_bytes over the step's duration, in Mbit/s",
    "rtt_min_ms": "smallest RTT sample of the step, in ms",
    "rtt_mean_ms": "mean of the step's RTT samples, in ms",
    "rtt_last_ms": "latest RTT sample so far, in ms",
    "in_flight_packets": "packets sent and neither acknowledged nor marked lost",
    "cwnd_packets": "congestion window in packets",
    "pacing_rate_mbps": "pacing rate in Mbit/s of payload; NaN when the flow does not pace",
    "is_buffer_limited": "1 if a socket buffer, not the congestion window, held the sender back in the step, else 0",
}
"""What every flow has, with any controller."""

FLOW_METRICS: Final[dict[str, str]] = _controllers.metrics()
"""What controllers say of their own state: every metric of every registered controller."""

FLOW_COLUMNS: Final[tuple[str, ...]] = (*FLOW_MEASUREMENTS, *FLOW_METRICS)

LINK_MEASUREMENTS: Final[dict[str, str]] = {
    "rate_mbps": "rate of the link at the end of the step, in Mbit/s on the wire",
    "utilisation": "share of the step, 0 to 1, in which the link was sending",
    "queue_mean_packets": "mean length of the queue over the step, in packets",
    "queue_max_packets": "largest length of the queue in the step, in packets",
    "queue_mean_ms": "mean time that the queue needs to drain, over the step, in ms",
    "queue_max_ms": "largest time that the queue needs to drain, in the step, in ms",
    "drops": "packets dropped by the queue in the step",
    "random_losses": "packets lost on the link at random in the step",
}
LINK_COLUMNS: Final[tuple[str, ...]] = tuple(LINK_MEASUREMENTS)
"""One row a step for the bottleneck link."""
