"""A flow as JSON in the layout of `iperf3 -J` (esnet/iperf), with our own entries beside it.

It has the entries of one UDP stream, and `retransmits`, `snd_cwnd` and RTTs as of a TCP stream. What is not measured,
such as jitter, is null.
"""

from __future__ import annotations

import email.utils
import os
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from bbrgym.envs.linux.transfer import Received, ReceivedInterval, Sent, SentInterval, Started, address_of


class Document:
    """The document of one flow.

    Args:
        started: the flow's first event.
        packet_bytes: payload of a full packet; None at the receiver, which is not told.
        seconds: how long to send; None until all is sent, and at the receiver.
        size_bytes: how much to send; None without a limit, and at the receiver.
        own: what only our `start` has.
        protocol: UDP or TCP.
    """

    def __init__(
        self,
        started: Started,
        own: Mapping[str, Any],
        packet_bytes: int | None = None,
        seconds: float | None = None,
        size_bytes: int | None = None,
        protocol: str = "UDP",
    ) -> None:
        (local_host, local_port), (host, port) = address_of(started.local), address_of(started.peer)
        self._packet_bytes = packet_bytes
        self._is_sender = packet_bytes is not None
        self._began = os.times()
        self._intervals: list[dict[str, Any]] = []
        self._start = {
            "connected": [
                {
                    "socket": 1,
                    "local_host": local_host,
                    "local_port": local_port,
                    "remote_host": host,
                    "remote_port": port,
                }
            ],
            **_program(),
            "connecting_to" if self._is_sender else "accepted_connection": {"host": host, "port": port},
            "test_start": {
                "protocol": protocol,
                "num_streams": 1,
                "blksize": packet_bytes,
                "omit": 0,
                "duration": seconds or 0,
                "bytes": size_bytes or 0,
                "blocks": 0,
                "reverse": 0,
                "bidir": 0,
            },
            **own,
        }

    def add(self, event: SentInterval | ReceivedInterval, own: Mapping[str, Any]) -> None:
        """Add an interval."""
        times = (event.start_s, event.end_s)
        of_stream: dict[str, Any] = {}
        if isinstance(event, SentInterval):
            row, seconds = event.row, event.end_s - event.start_s
            size = round(row["send_rate_mbps"] * 1e6 / 8 * seconds) if seconds > 0 else 0
            packets, retransmits = round(row["sent_packets"]), round(row["retransmitted_packets"])
            total = _total(*times, size, True, packets=packets, retransmits=retransmits, omitted=False)
            of_stream = {"snd_cwnd": row["cwnd_packets"] * (self._packet_bytes or 0), "rtt": row["rtt_mean_ms"] * 1e3}
        else:
            total = _total(*times, event.received_bytes, False, packets=event.arrived_packets, omitted=False)
        self._intervals.append({"streams": [{"socket": 1, **total, **of_stream}], "sum": total, **own})

    def end(self, event: Sent | Received, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document of a flow that has ended."""
        packets: int | None
        size: int | None
        retransmits: dict[str, Any] = {}
        path: dict[str, Any] = {}
        if isinstance(event, Sent):
            flow = event.trace.summary().flows[0]
            packets, size = flow.sent_packets, sum(interval["sum"]["bytes"] for interval in self._intervals)
            arrived: Mapping[str, int] = event.received or {}
            retransmits = {"retransmits": flow.retransmissions}
            path = {
                "max_snd_cwnd": max(interval["streams"][0]["snd_cwnd"] for interval in self._intervals),
                "min_rtt": event.trace.scenario.flows[0].rtt_ms * 1e3,
                "mean_rtt": flow.rtt_mean_ms * 1e3,
            }
        else:
            packets, size, arrived = event.sent_packets, event.sent_bytes, vars(event.whole)
        lost, received = event.lost_packets, arrived.get("received_bytes")
        percent = 100 * lost / packets if lost and packets else lost
        losses: dict[str, Any] = {"jitter_ms": None, "lost_packets": lost, "lost_percent": percent}
        times = (0.0, self._intervals[-1]["sum"]["end"])
        of_sender = _total(*times, size, True, packets=packets, **retransmits)
        of_receiver = _total(*times, received, False, packets=arrived.get("arrived_packets"), **losses)
        both = _total(*times, size if self._is_sender else received, self._is_sender, packets=packets, **losses)
        streams = {
            "udp": {"socket": 1, **both, "out_of_order": arrived.get("reordered_packets")},
            "sender": {"socket": 1, **of_sender, **path},
            "receiver": {"socket": 1, **of_receiver},
        }
        ended = {"streams": [streams], "sum": both, "sum_sent": of_sender, "sum_received": of_receiver}
        end = {**ended, "cpu_utilization_percent": self._processor(), **own}
        return {"start": self._start, "intervals": self._intervals, "end": end}

    def fail(self, error: str) -> dict[str, Any]:
        """Return the document of a flow that an error has ended: what there is of it, and the error."""
        return {"start": self._start, "intervals": self._intervals, "end": {}, "error": error}

    def _processor(self) -> dict[str, float | None]:
        """Return the share of a core that this process has used, in percent."""
        now = os.times()
        elapsed_s = max(now.elapsed - self._began.elapsed, 1e-9)
        user, system = (100 * (now[i] - self._began[i]) / elapsed_s for i in (0, 1))
        return {
            "host_total": user + system,
            "host_user": user,
            "host_system": system,
            "remote_total": None,
            "remote_user": None,
            "remote_system": None,
        }


def failure(error: str) -> dict[str, Any]:
    """Return the document of a flow that has not begun."""
    return {"start": {"connected": [], **_program()}, "intervals": [], "end": {}, "error": error}


def _program() -> dict[str, Any]:
    """Return what `start` says of the program and the machine."""
    now = time.time()
    return {
        "version": f"bbrgym {metadata.version('bbrgym')}",
        "system_info": " ".join(platform.uname()),
        "timestamp": {
            "time": email.utils.formatdate(now, usegmt=True),
            "timesecs": int(now),
            "timemillisecs": int(now * 1e3),
        },
    }


def _total(start_s: float, end_s: float, size: int | None, is_sender: bool, **more: Any) -> dict[str, Any]:
    seconds = end_s - start_s
    rate = None
    if size is not None:
        rate = size * 8 / seconds if seconds > 0 else 0.0
    times = {"start": start_s, "end": end_s, "seconds": seconds}
    return {**times, "bytes": size, "bits_per_second": rate, **more, "sender": is_sender}
