"""`bbrgym send` and `bbrgym receive`: `bbrgym.envs.linux.transfer` on the command line, with lines as iperf3's."""

from __future__ import annotations

import argparse
import dataclasses
import math
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bbrgym.baselines import registry
from bbrgym.checks import check_name, integer, read_parameters
from bbrgym.envs.linux.iperf_json import Document, failure
from bbrgym.envs.linux.transfer import (
    DEFAULT_PORT,
    Listening,
    Received,
    ReceivedInterval,
    Sent,
    SentInterval,
    Started,
    address_of,
    name_of,
    receive,
    send,
    trace_of,
)
from bbrgym.envs.scenario import Flow
from bbrgym.envs.trace_file import save_trace
from bbrgym.extras import require
from bbrgym.files import check_file, json_text
from bbrgym.options import OptionParser

_SENT_COLUMNS: Final = ("transfer", "bitrate", "retr", "cwnd", "rtt", "pacing gain")
_RECEIVED_COLUMNS: Final = ("transfer", "bitrate", "packets", "reordered")


def send_parser() -> OptionParser:
    """Return the parser of `bbrgym send`."""
    parser = OptionParser("send")
    parser.add_argument("receiver", metavar="HOST:PORT", help="where `bbrgym receive` or a TCP receiver listens")
    parser.add_argument("parameters", nargs="*", metavar="NAME=NUMBER", help="a parameter of the algorithm")
    parser.add_argument("--algorithm", default="policy", metavar="NAME", help="one of bbrgym.controllers(), or FILE.c")
    parser.add_argument(
        "--policy", metavar="PATH", help="a training run or an agent's folder; the shipped policy without it"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="how long; 10 without it and --bytes")
    parser.add_argument("--bytes", type=integer, metavar="N", help="how much")
    parser.add_argument(
        "--packet-bytes", type=integer, metavar="N", help="payload of a packet; 1000 without it, and TCP finds its own"
    )
    parser.add_argument(
        "--transport",
        default="ours",
        metavar="ours|kernel",
        help="kernel: TCP of this kernel with a policy's gains, or --algorithm agent (docs/kernel.md)",
    )
    parser.add_argument("--ecn", metavar="classic|l4s", help="send ECT(0), or ECT(1); no ECN without it")
    parser.add_argument("--seed", type=integer, metavar="N", help="of the algorithm; a random one without it")
    parser.add_argument("--rows", type=Path, metavar="FILE.parquet", help="write the rows as a trace")
    _add_common(parser, "print one JSON document at the end", "how long the receiver may be silent, in s")
    return parser


def run_send(arguments: list[str]) -> int:
    """Send one flow and print it.

    Returns:
        The exit status: 1 if the receiver's report is missing.
    """
    options = send_parser().parse_intermixed_args(arguments)
    with _Output(options.json) as out:
        return _send(options, out)


def _send(options: argparse.Namespace, out: _Output) -> int:
    if options.rows is not None:
        require("a trace file", "pyarrow")
        if options.rows.suffix != ".parquet":
            raise ValueError(f"--rows: the file must end with .parquet, got '{options.rows}'")
        check_file("--rows", options.rows)
    file = options.algorithm if options.algorithm.endswith(".c") else None
    if file is None:
        check_name("algorithm", options.algorithm, registry.controllers())
    host, port = address_of(options.receiver)
    flow = Flow(
        options.algorithm if file is None else registry.FILE,
        size_bytes=options.bytes,
        parameters=read_parameters(options.parameters),
        policy=options.policy,
        file=file,
        ecn=options.ecn,
        transport=options.transport,
    )
    seed = secrets.randbits(63) if options.seed is None else options.seed
    sent: list[SentInterval] = []
    packet_bytes, status = 1000, 1
    events = send(
        host,
        port,
        flow=flow,
        seconds=options.seconds,
        packet_bytes=options.packet_bytes,
        interval_s=options.interval,
        timeout_s=options.timeout,
        seed=seed,
    )
    try:
        for event in events:
            match event:
                case Started():
                    packet_bytes = event.packet_bytes or packet_bytes
                    told = {"receiver": event.peer, "algorithm": options.algorithm, "packet_bytes": event.packet_bytes}
                    protocol = "TCP" if flow.transport == "kernel" else "UDP"
                    out.start(
                        Document(
                            event,
                            told,
                            packet_bytes=event.packet_bytes,
                            seconds=options.seconds,
                            size_bytes=options.bytes,
                            protocol=protocol,
                        )
                    )
                    out.line(f"sending to {event.peer}: {options.algorithm}")
                    out.line(_row("interval", _SENT_COLUMNS))
                case SentInterval():
                    sent.append(event)
                    out.interval(event, _sent_line(event))
                case Sent():
                    summary = event.trace.summary().flows[0]
                    own = {"sender": vars(summary), "receiver": event.received, "lost_packets": event.lost_packets}
                    out.end(event, own)
                    for line in _sent_summary(event):
                        out.line(line)
                    status = 0 if event.received is not None else 1
    finally:  # also what was sent before an error, or Ctrl-C
        if options.rows is not None and sent:
            trace = trace_of(flow, packet_bytes=packet_bytes, seed=seed, interval_s=options.interval, intervals=sent)
            save_trace(trace, options.rows)
    return status


def receive_parser() -> OptionParser:
    """Return the parser of `bbrgym receive`."""
    parser = OptionParser("receive")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to receive at; 0.0.0.0 and :: are all of this machine's",
    )
    parser.add_argument("--port", type=integer, default=DEFAULT_PORT, metavar="N", help="UDP port; 0: a free one")
    parser.add_argument("--once", action="store_true", help="end after one flow")
    parser.add_argument("--idle", type=float, default=600.0, metavar="S", help="end after so long without a flow, in s")
    _add_common(
        parser, "print one JSON document at the end of each flow", "a sender that is silent for so long is gone, in s"
    )
    return parser


def run_receive(arguments: list[str]) -> int:
    """Receive flows and print them."""
    options = receive_parser().parse_args(arguments)
    with _Output(options.json) as out:
        return _receive(options, out)


def _receive(options: argparse.Namespace, out: _Output) -> int:
    for event in receive(
        options.host,
        options.port,
        is_once=options.once,
        interval_s=options.interval,
        timeout_s=options.timeout,
        idle_s=options.idle,
    ):
        match event:
            case Listening():
                out.line(f"receiving at {name_of(event.host, event.port)}")
            case Started():
                out.start(Document(event, {"sender": event.peer}))
                out.line(f"from {event.peer}")
                out.line(_row("interval", _RECEIVED_COLUMNS))
            case ReceivedInterval():
                out.interval(event, _received_line(event))
            case Received():
                out.end(event, dataclasses.asdict(event) | {"lost_packets": event.lost_packets})
                out.line(f"{_received_line(event.whole)}   {_losses(event)}")
    if not options.once:
        out.line(f"no flow for {options.idle:g} s")
    return 0


class _Output:
    """What a command prints: lines as they come, or one JSON document per flow at its end.

    As a context manager it prints the document of a flow that an error ends, too.
    """

    def __init__(self, is_json: bool) -> None:
        self._is_json = is_json
        self._document: Document | None = None
        self._has_ended = False

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not self._is_json or self._has_ended or isinstance(error, BrokenPipeError):
            return
        text = str(error) if isinstance(error, Exception) else "interrupted"
        if self._document is not None:
            print(json_text(self._document.fail(text)), flush=True)
        elif isinstance(error, Exception):  # a receiver that is interrupted has no flow
            print(json_text(failure(text)), flush=True)

    def line(self, text: str) -> None:
        if not self._is_json:
            print(text, flush=True)

    def start(self, document: Document) -> None:
        self._document, self._has_ended = document, False

    def interval(self, event: SentInterval | ReceivedInterval, line: str) -> None:
        assert self._document is not None
        facts = dataclasses.asdict(event)
        self._document.add(event, facts | facts.pop("row", {}))
        self.line(line)

    def end(self, event: Sent | Received, own: dict[str, Any]) -> None:
        assert self._document is not None
        if self._is_json:
            print(json_text(self._document.end(event, own)), flush=True)
        self._has_ended = True


def _add_common(parser: OptionParser, json: str, timeout: str) -> None:
    """Add the options of both commands, with what two of them mean there."""
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="time between lines, in s")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help=timeout)
    parser.add_argument("--json", action="store_true", help=json)


def _row(interval: str, cells: tuple[str, ...]) -> str:
    return f"{interval:<16}" + "".join(f"{cell:>14}" for cell in cells)


def _times(event: SentInterval | ReceivedInterval) -> str:
    return f"{event.start_s:.2f}-{event.end_s:.2f} s"


def _sent_line(event: SentInterval) -> str:
    row = event.row
    cells = (
        _bytes(row["received_bytes"]),
        _rate(row["throughput_mbps"]),
        f"{row['retransmitted_packets']:.0f}",
        f"{row['cwnd_packets']:.0f} pkt",
        _number(row["rtt_mean_ms"], "{:.3g} ms"),
        _number(row["pacing_gain"], "{:.2f}"),
    )
    return _row(_times(event), cells)


def _received_line(event: ReceivedInterval) -> str:
    seconds = event.end_s - event.start_s
    rate_mbps = event.received_bytes * 8e-6 / seconds if seconds > 0 else 0.0
    cells = (_bytes(event.received_bytes), _rate(rate_mbps), str(event.arrived_packets), str(event.reordered_packets))
    return _row(_times(event), cells)


def _sent_summary(event: Sent) -> Iterator[str]:
    packet_bytes = event.trace.scenario.packet_bytes
    flow = event.trace.summary().flows[0]
    duration_s = float(event.trace.time_s[-1])
    cells = (
        _bytes(flow.received_bytes),
        _rate(flow.throughput_mbps),
        str(flow.retransmissions),
        "",
        _number(flow.rtt_mean_ms, "{:.3g} ms"),
    )
    yield _row(f"0.00-{duration_s:.2f} s", cells)
    yield f"sender:   {flow.sent_packets} packets of {packet_bytes} bytes, {flow.retransmission_rate:.2%} retransmitted"
    if (received := event.received) is None:
        yield "receiver: no report"
        return
    yield (
        f"receiver: {received['arrived_packets']} packets arrived, {event.lost_packets} lost, "
        f"{received['reordered_packets']} reordered; {received['received_bytes']} bytes in order"
    )


def _losses(event: Received) -> str:
    if event.lost_packets is None:
        return "the sender vanished"
    return f"{event.lost_packets} of {event.sent_packets} packets lost"


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else form.format(value)


def _rate(mbps: float) -> str:
    return f"{_three_digits(mbps * 1e6)}bit/s"


def _bytes(count: float) -> str:
    return f"{_three_digits(count)}B"


def _three_digits(value: float) -> str:
    """Return a value with an SI prefix: `1.25 G`."""
    for prefix in ("", "k", "M"):
        if value < 999.5:
            return f"{value:.3g} {prefix}"
        value /= 1000
    return f"{value:.3g} G"
