"""Flows between two machines: both ends on loopback, and peers that do not keep to the rules (docs/wire.md)."""

import contextlib
import json
import os
import queue
import random
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import iperf3  # type: ignore[import-untyped]
import pytest
from udp_peer import (
    ACK,
    BUSY,
    DATA,
    END,
    REPORT,
    RETRY,
    WELCOME,
    FakeReceiver,
    Peer,
    ack,
    data_datagram,
    datagram,
    end,
    hello,
    receiver,
)
from waiting import free_port

from bbrgym.cli import main
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.linux import commands, transfer
from bbrgym.envs.linux.transfer import (
    Listening,
    Received,
    ReceivedInterval,
    Sent,
    SentInterval,
    Started,
    _receive_flow,
    trace_of,
)
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace_file import load_trace

BYTES = 200_500
ENDLESS = Scenario(flows=(Flow("bbr"),)).to_dict()["flows"][0]


class InThread:
    """A receiver of one flow in a thread, and its events."""

    def __init__(self, host: str = "127.0.0.1", timeout_s: float = 60.0) -> None:
        self._events: queue.Queue[Any] = queue.Queue()
        self._arguments = (host, 0, True, 60.0, timeout_s)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        first = self._events.get(timeout=60)
        if isinstance(first, Exception):
            raise first
        self.port: int = first.port

    def _run(self) -> None:
        try:
            for event in transfer.receive(*self._arguments):
                self._events.put(event)
        except Exception as error:
            self._events.put(error)

    def rest(self) -> list[Any]:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return list(self._events.queue)


@contextlib.contextmanager
def connected() -> Iterator[tuple[Any, Peer]]:
    server, address = receiver()
    with contextlib.closing(Peer(server, address)) as peer:
        peer.connect()
        yield server, peer


@pytest.mark.parametrize("algorithm", ["policy", "bbr"])
def test_a_finite_transfer_ends_and_both_ends_agree(algorithm: str) -> None:
    other = InThread()
    events = list(transfer.send("127.0.0.1", other.port, Flow(algorithm, size_bytes=BYTES), seed=1, timeout_s=60))
    assert isinstance(events[0], Started)
    assert events[0].peer == f"127.0.0.1:{other.port}"
    intervals, sent = events[1:-1], events[-1]
    assert isinstance(sent, Sent)
    assert sum(e.row["received_bytes"] for e in intervals if isinstance(e, SentInterval)) == BYTES
    flow = sent.trace.summary().flows[0]
    started, *parts, received = other.rest()
    assert isinstance(started, Started)
    assert isinstance(received, Received)
    assert all(isinstance(part, ReceivedInterval) for part in parts)
    assert sum(part.received_bytes for part in parts) == received.whole.received_bytes == BYTES
    assert flow.received_bytes == BYTES
    assert received.sent_packets == flow.sent_packets
    assert sent.received is not None
    assert sent.received["arrived_packets"] == received.whole.arrived_packets
    assert received.lost_packets == sent.lost_packets == flow.sent_packets - received.whole.arrived_packets


def test_a_controller_in_c_sends_until_it_decides_what_cannot_be_done(tmp_path: Path) -> None:
    path = tmp_path / "mine.c"
    path.write_text("""
        #include "bbrgym_controller.h"
        static void create(void *state, const struct bbrgym_connection *c) { *(double *)state = 20000; (void)c; }
        static void on_ack(void *state, const struct bbrgym_ack *ack) {
          if (ack->delivered >= 100000) *(double *)state = -1;
        }
        static void decision(const void *state, struct bbrgym_decision *d) { d->window = *(const double *)state; }
        const struct bbrgym_controller bbrgym_controller = {1, sizeof(double), 0, create, on_ack, 0, decision, 0};
    """)
    whole = transfer.send(
        "127.0.0.1", InThread().port, Flow("file", file=str(path), size_bytes=50_000), seed=1, timeout_s=60
    )
    *_, sent = whole
    assert isinstance(sent, Sent)
    assert sent.trace.summary().flows[0].received_bytes == 50_000
    other = InThread()
    with pytest.raises(ValueError, match="controller 'mine' chose window -1"):
        list(transfer.send("127.0.0.1", other.port, Flow("file", file=str(path)), seconds=60, interval_s=0.1, seed=1))
    assert isinstance(other.rest()[-1], Received)


def test_a_limited_time_over_ipv6() -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    other = InThread("::1")
    *_, sent = transfer.send("::1", other.port, Flow("cubic"), seconds=0.05, interval_s=0.02, timeout_s=60)
    assert isinstance(sent, Sent)
    received = other.rest()[-1]
    assert sent.received is not None
    assert received.whole.received_bytes == sent.received["received_bytes"] > 0
    assert 2 <= len(sent.trace.time_s) <= 3
    assert sent.trace.time_s[-1] >= 0.05


def test_commands_print_lines_json_and_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--bytes", str(BYTES), "--algorithm", "bbr", "cwnd_gain=3", "--timeout", "60"]
    assert main(["send", f"127.0.0.1:{InThread().port}", *given, "--rows", "rows.parquet"]) == 0
    assert "200 kB" in capsys.readouterr().out.splitlines()[-3]
    trace = load_trace(Path("rows.parquet"))
    assert trace.summary().flows[0].received_bytes == BYTES
    assert trace.scenario.flows[0].parameters == {"cwnd_gain": 3}
    assert (trace.engine, trace.flows.shape[2]) == ("udp", len(FLOW_COLUMNS))
    assert main(["send", f"127.0.0.1:{InThread().port}", *given, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["start"]["algorithm"] == "bbr"
    assert sum(interval["received_bytes"] for interval in document["intervals"]) == BYTES
    assert document["end"]["receiver"]["received_bytes"] == BYTES
    assert "error" not in document


def test_readers_of_iperf3_read_what_both_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    arguments = ["receive", "--port", str(port), "--once", "--json", "--timeout", "60"]
    other = threading.Thread(target=main, args=(arguments,))
    other.start()
    size = ["--bytes", "2e5", "--packet-bytes", "1e3", "--algorithm", "bbr", "--interval", "0.01"]
    assert main(["send", f"127.0.0.1:{port}", *size, "--json", "--timeout", "60"]) == 0
    other.join(60)
    decoder, text = json.JSONDecoder(), capsys.readouterr().out.strip()
    first, length = decoder.raw_decode(text)
    documents = sorted([first, json.loads(text[length:])], key=lambda document: "connecting_to" in document["start"])
    for document, kind in zip(documents, ("server", "client"), strict=True):
        read = iperf3.TestResult(json.dumps(document))
        assert (read.error, read.type, read.protocol, read.num_streams, read.reverse) == (None, kind, "UDP", 1, False)
        assert {read.local_port, read.remote_port} >= {port}
        intervals, ended = document["intervals"], document["end"]
        for interval in intervals:
            (stream,) = interval["streams"]
            assert stream.items() >= interval["sum"].items()
            assert stream["bytes"] * 8 == pytest.approx(stream["bits_per_second"] * stream["seconds"])
        own = ended["sum_sent" if kind == "client" else "sum_received"]
        assert sum(interval["sum"]["bytes"] for interval in intervals) == own["bytes"] == read.bytes
        assert own["bytes"] * 8 == pytest.approx(own["bits_per_second"] * own["seconds"])
        assert ended["sum_received"]["bytes"] == 200_000 <= ended["sum_sent"]["bytes"]
        assert (read.lost_packets, read.packets) == (ended["lost_packets"], ended["sum_sent"]["packets"])
        assert ended["sum_received"]["packets"] + read.lost_packets >= 200
    sent = documents[1]
    assert (read.blksize, sent["start"]["test_start"]["bytes"]) == (1000, 200_000)
    retransmits = sum(interval["sum"]["retransmits"] for interval in sent["intervals"])
    assert retransmits == sent["end"]["sum_sent"]["retransmits"] == sent["end"]["sender"]["retransmissions"]
    assert all(interval["streams"][0]["snd_cwnd"] >= 1000 for interval in sent["intervals"])
    assert sent["end"]["streams"][0]["sender"]["min_rtt"] > 0


def test_what_both_commands_print_is_read_as_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    arguments = ["receive", "--port", str(port), "--once", "--json", "--timeout", "60", "--interval", "0.02"]
    other = threading.Thread(target=main, args=(arguments,))
    other.start()
    size = ["--bytes", "2e5", "--algorithm", "bbr", "--interval", "0.02"]
    assert main(["send", f"127.0.0.1:{port}", *size, "--json", "--timeout", "60"]) == 0
    other.join(60)
    decoder, text = json.JSONDecoder(), capsys.readouterr().out.strip()
    first, length = decoder.raw_decode(text)
    for document in (first, json.loads(text[length:])):
        path = tmp_path / "flow.json"
        path.write_text(json.dumps(document))
        scenario = Scenario.from_dict({"duration_s": 1, "rate_trace": {"file": str(path), "lowest_mbps": 0.01}})
        total = document["intervals"][0]["sum"]
        assert scenario.rate_schedule[0] == (0.0, max(total["bits_per_second"] / 1e6, 0.01))
        rtts = [interval["streams"][0].get("rtt") for interval in document["intervals"]]
        if measured := [rtt for rtt in rtts if rtt]:
            flows = [{"rtt_trace": {"file": str(path)}}]
            schedule = Scenario.from_dict({"duration_s": 1, "flows": flows}).flows[0].rtt_schedule
            assert schedule[0] == (0.0, measured[0] / 1e3)


def errors_of(document: dict[str, Any]) -> str:
    """The error of a failed flow's document, as a reader of iperf3 finds it."""
    assert document["end"] == {}
    assert document["start"]["version"].startswith("bbrgym ")
    return str(iperf3.TestResult(json.dumps(document)).error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["send", "127.0.0.1:1", "--algorithm", "bbr-stock"], "unknown algorithm 'bbr-stock'"),
        (["send", "127.0.0.1:port"], "give the receiver as HOST:PORT"),
        (["send", "127.0.0.1:1", "--timeout", "0.05"], "no answer from 127.0.0.1:1"),
        (["send", "127.0.0.1:1", "beta"], "give parameters as name=number"),
        (["receive", "--port", "99999"], "port must be"),
    ],
)
def test_an_error_before_the_flow_is_a_document_too(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json"]) == 1
    printed = capsys.readouterr()
    assert message in errors_of(json.loads(printed.out))
    assert message in printed.err


def test_an_error_within_the_flow_is_a_document_and_rows_with_what_there_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = dict.fromkeys(FLOW_COLUMNS, 1.0)

    def failing(error: BaseException) -> Any:
        def events(*_: Any, **_options: Any) -> Iterator[Any]:
            yield Started("127.0.0.1:1", "127.0.0.1:2", 1000)
            yield SentInterval(0.0, 0.5, row)
            raise error

        return events

    for error, text, status in ((ConnectionError("gone"), "gone", 1), (KeyboardInterrupt(), "interrupted", 130)):
        monkeypatch.setattr(commands, "send", failing(error))
        rows = tmp_path / f"{text}.parquet"
        assert main(["send", "127.0.0.1:1", "--json", "--rows", str(rows)]) == status
        assert load_trace(rows).time_s.tolist() == [0.5]
        document = json.loads(capsys.readouterr().out)
        assert errors_of(document) == text
        assert document["start"]["connecting_to"] == {"host": "127.0.0.1", "port": 1}
        assert [interval["sum"]["end"] for interval in document["intervals"]] == [0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["127.0.0.1:1", "--algorithm", "bbr-stock"], "unknown algorithm 'bbr-stock'"),
        (["127.0.0.1:1", "beta"], "give parameters as name=number, got 'beta'"),
        (["127.0.0.1:port"], "give the receiver as HOST:PORT"),
        (["::1:5201"], "give the receiver as HOST:PORT"),
        (["a..b:5201"], "cannot send to 'a..b'"),
        (["127.0.0.1:1", "--seconds", "0"], "seconds must be"),
        (["127.0.0.1:1", "--rows", "rows.csv"], "--rows: the file must end with .parquet, got 'rows.csv'"),
    ],
)
def test_errors_say_what_is_wrong(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["send", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_without_a_receiver_the_sender_gives_up_and_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        assert main(["send", f"127.0.0.1:{port}", "--timeout", "0.05"]) == 1
    assert f"no answer from 127.0.0.1:{port} within 0.05 s: run `bbrgym receive`" in capsys.readouterr().err
    assert main(["send", f"127.0.0.1:{port}", "--timeout", "0.05"]) == 1
    assert "within 0.05 s (Connection refused): run" in capsys.readouterr().err


def test_a_receiver_that_falls_silent_ends_the_flow() -> None:
    fake = FakeReceiver(ENDLESS)
    fake.connect()
    with pytest.raises(ConnectionError, match="has not answered for"):
        list(transfer._send_intervals(fake.sender, peer="it", seconds=None, interval_s=60.0, timeout_s=0.05))
    fake.close()


def test_an_address_that_cannot_be_used_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert main(["receive", "--port", str(port)]) == 1
    assert f"cannot receive at 127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


def test_a_receiver_without_flows_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["receive", "--port", "0", "--idle", "0.02"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no flow for 0.02 s"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_receiver_ends_with_one_line(
    number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Interrupting(list[str]):
        """Standard output; the first line lets a thread send the signal."""

        def write(self, text: str) -> None:
            if "receiving" in text:
                threading.Thread(target=os.kill, args=(os.getpid(), number)).start()

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stdout", Interrupting())
    assert main(["receive", "--port", "0"]) == status
    assert capfd.readouterr().err == f"bbrgym: {'interrupted' if number == signal.SIGINT else 'terminated'}\n"


def test_nothing_counts_before_the_address_is_proved() -> None:
    server, address = receiver()
    with contextlib.closing(Peer(server, address)) as peer, contextlib.closing(Peer(server, address)) as other:
        others = [b"", b"\x31", bytes(2000), hello(1)[:-1], datagram(ACK, bytes(12))]
        for sent in (data_datagram(0, 0), end(bytes(16), 0), *others):
            assert peer.exchange(sent) == []
        (retry,) = other.exchange(hello(1))
        assert peer.exchange(hello(2, retry[12:]))[0][0] & 15 == RETRY  # that token is for another address
        assert (server.phase, server.report["arrived_packets"]) == ("waiting", 0)
        peer.connect()
        assert server.phase == "receiving"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_answers_come_from_the_address_that_was_asked(host: str) -> None:
    """A host has several, and the sender's socket takes nothing from another one."""
    if ":" in host and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    server, (_, port, *_) = receiver(host=host)
    with contextlib.closing(Peer(server, ("127.0.0.2", port))) as peer:
        peer.connect()
        assert peer.exchange(data_datagram(0, peer.connection)) == [ack((0, 0), connection=peer.connection)]
        (report,) = peer.exchange(end(peer.token, peer.connection, 1))
        assert report[0] & 15 == REPORT


def test_an_unproved_address_gets_no_more_bytes_than_it_sent() -> None:
    server, address = receiver()
    rng = random.Random(1)
    tries = [hello(5), *(datagram(kind, bytes(size)) for kind in range(16) for size in (0, 8, 24, 32, 1000))]
    tries += [rng.randbytes(rng.randrange(60)) for _ in range(100)]
    answered = 0
    with contextlib.closing(Peer(server, address)) as peer:
        for sent in tries:
            answers = peer.exchange(sent)
            assert sum(map(len, answers)) <= len(sent)
            answered += len(answers)
    assert answered > 0
    assert server.phase == "waiting"


def test_others_are_told_that_the_receiver_is_busy() -> None:
    with connected() as (server, peer):
        other = Peer(server, peer._socket.getpeername())
        (retry,) = other.exchange(hello(1))
        (busy,) = other.exchange(hello(2, retry[12:]))
        assert (busy[0] & 15, busy[4:]) == (BUSY, struct.pack("!Q", 2))
        assert other.exchange(data_datagram(0, peer.connection)) == []
        assert server.report["arrived_packets"] == 0
        assert peer.exchange(data_datagram(0, peer.connection))[0][0] & 15 == ACK
        other.close()


def test_a_sender_says_that_the_receiver_is_busy() -> None:
    fake = FakeReceiver(ENDLESS)
    asked = fake.read()
    fake.answer(datagram(BUSY, struct.pack("!Q", 1)))  # of another hello
    assert fake.sender.phase == "connecting"
    fake.answer(datagram(BUSY, asked[4:12]))
    with pytest.raises(ConnectionError, match="it serves another sender: try again later"):
        transfer._connect(fake.sender, "it", 60.0)
    fake.close()


def test_a_lost_welcome_is_repeated_and_an_old_hello_begins_no_flow() -> None:
    with connected() as (server, peer):
        assert peer.exchange(hello(3, peer.token))[0][0] & 15 == WELCOME
        assert peer.exchange(end(peer.token, peer.connection, flags=1)) == []
        assert server.phase == "over"
        server.release()
        assert peer.exchange(hello(2, peer.token)) == []
        assert server.phase == "waiting"
        peer.connect()
        assert server.phase == "receiving"


def test_the_report_is_repeated_until_it_has_arrived() -> None:
    with connected() as (server, peer):
        sent = [data_datagram(number, peer.connection) for number in (0, 3, 2)]
        acks = peer.exchange(*sent)
        assert acks[-1] == ack((2, 3), (0, 0), connection=peer.connection)
        assert peer.exchange(end(bytes(16), peer.connection, 4)) == []  # not this sender's token
        expected = datagram(REPORT, struct.pack("!QQQQ", 100, 300, 3, 1), peer.connection)
        assert peer.exchange(end(peer.token, peer.connection, 4)) == [expected]
        assert peer.exchange(data_datagram(1, peer.connection)) == []  # too late
        assert peer.exchange(end(peer.token, peer.connection, 9)) == [expected]
        assert server.sent == (4, 400)
        assert server.phase == "reported"
        assert peer.exchange(end(peer.token, peer.connection, 4, flags=1)) == []
        assert server.phase == "over"


def test_a_receiver_reports_marks() -> None:
    with connected() as (_, peer):
        assert peer.exchange(data_datagram(0, peer.connection)) == [ack((0, 0), connection=peer.connection)]
        peer.mark()
        answers = peer.exchange(data_datagram(1, peer.connection))
        assert answers == [ack((0, 1), marked=100, connection=peer.connection)]


@pytest.mark.parametrize(("ecn", "field"), [(None, 0), ("classic", 2), ("l4s", 1)])
def test_a_sender_says_that_it_is_ecn_capable_and_reads_marks(ecn: str | None, field: int) -> None:
    fake = FakeReceiver(ENDLESS | {"ecn": ecn})
    first = fake.read()
    assert fake.ecn == 0
    fake.connect(first)
    assert fake.read()[0] & 15 == DATA
    assert fake.ecn == field
    fake.answer(ack((0, 0), marked=100))
    assert fake.sender.row()[1 + FLOW_COLUMNS.index("marked_packets")] == (field > 0)
    fake.close()


def test_packets_far_ahead_are_refused() -> None:
    with connected() as (server, peer):
        assert peer.exchange(data_datagram(2**20, peer.connection))[0][0] & 15 == ACK
        for number in (2**22, 2**31, 2**32 - 1):
            assert peer.exchange(data_datagram(number, peer.connection)) == []
        assert server.report["arrived_packets"] == 1


def test_a_vanished_sender_frees_the_receiver() -> None:
    server, address = receiver(silence_s=0.01)
    with contextlib.closing(Peer(server, address)) as peer:
        peer.connect()
        server.wait(60 * 10**9)
        assert (server.phase, server.sent) == ("over", None)


def test_a_flow_of_a_vanished_sender_ends_with_its_last_packet() -> None:
    server, address = receiver(silence_s=0.2)
    with contextlib.closing(Peer(server, address)) as peer:
        peer.connect()
        *intervals, ended = _receive_flow(server, interval_s=0.05, timeout_s=0.2)
    assert ended.sent_packets is None
    assert ended.whole.end_s == pytest.approx(max(intervals[-1].end_s - 0.2, 0.001))


def test_packets_that_leave_after_the_last_interval_can_be_lost() -> None:
    row = {**dict.fromkeys(FLOW_COLUMNS, 0.0), "sent_packets": 90.0, "rtt_min_ms": 20.0}
    trace = trace_of(Flow(), packet_bytes=1000, seed=1, interval_s=1.0, intervals=[SentInterval(0.0, 1.0, row)])
    assert Sent(trace, {"arrived_packets": 95}, later_packets=10).lost_packets == 5


def test_a_sender_refuses_what_it_has_not_asked_for() -> None:
    fake = FakeReceiver(ENDLESS)
    first = fake.read()
    asked = first[4:12]
    later = struct.pack("!Q", (int.from_bytes(asked, "big") + 10**12) % 2**64)
    fake.answer(datagram(WELCOME, later), datagram(WELCOME, asked, connection=9), datagram(REPORT, bytes(32)))
    assert fake.sender.phase == "connecting"
    fake.connect(first)
    fake.answer(ack((0, 2**40)), ack((0, 0), connection=9))
    assert fake.sender.row()[1 + FLOW_COLUMNS.index("delivered_packets")] == 0
    fake.answer(ack((0, 0)))
    assert fake.sender.row()[1 + FLOW_COLUMNS.index("delivered_packets")] == 1
    fake.sender.finish()
    while (last := fake.read())[0] & 15 != END:
        pass
    fake.answer(datagram(REPORT, bytes(32)))
    assert fake.sender.phase == "over"
    assert fake.sender.report == dict.fromkeys(
        ("received_bytes", "arrived_bytes", "arrived_packets", "reordered_packets"), 0
    )
    assert (last[1], fake.read()[1]) == (0, 1)  # the flag: the report has arrived
    fake.close()


def test_receiving_and_sending_are_generators_that_can_be_abandoned() -> None:
    events = transfer.receive(port=0)
    listening = next(events)
    assert isinstance(listening, Listening)
    events.close()  # type: ignore[attr-defined]
    events = transfer.receive(port=listening.port)
    assert next(events) == listening
