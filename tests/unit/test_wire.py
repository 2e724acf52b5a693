"""The wire format of the transport over UDP: golden bytes, and what a host refuses."""

from __future__ import annotations

import random

import pytest

from bbrgym import _testing

HELLO, RETRY, WELCOME, DATA, ACK, END = range(1, 7)
GOLDEN = {
    "hello": (
        {"kind": HELLO, "connection": 0x0102, "time": 0x1122334455667788, "token": bytes(range(16))},
        "11000102" "1122334455667788" "000102030405060708090a0b0c0d0e0f",
    ),
    "retry": ({"kind": RETRY, "time": 5, "token": b"\xff" * 16}, "12000000" "0000000000000005" + "ff" * 16),
    "welcome": ({"kind": WELCOME, "connection": 7, "time": 5}, "13000007" "0000000000000005"),
    "data": (
        {"kind": DATA, "connection": 7, "number": 0x01020304, "segment": 9, "bytes": 2},
        "14000007" "01020304" "00000009" "0000",
    ),
    "retransmission": (
        {"kind": DATA, "number": 1, "bytes": 1, "is_retransmission": True},
        "14010000" "00000001" "00000000" "00",
    ),
    "ack": (
        {"kind": ACK, "connection": 7, "ranges": [(5, 0x1_0000_0000), (0, 3)]},
        "15000007" "02000000" "0000000000000005" "0000000100000000" "0000000000000000" "0000000000000003",
    ),
    "ack of eight ranges": (
        {"kind": ACK, "ranges": [(n, n) for n in range(16, 0, -2)]},
        "15000000" "08000000" + "".join(f"{n:016x}{n:016x}" for n in range(16, 0, -2)),
    ),
    "end": ({"kind": END, "connection": 7}, "16000007"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name: str) -> None:
    fields, expected = GOLDEN[name]
    written = _testing.write_datagram(**fields)  # type: ignore[arg-type]
    assert written.hex() == expected
    assert _testing.rewrite_datagram(written) == written


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "14",
        "24000007" "00000001" "00000000" "00",  # version 2
        "1f000007",  # unknown kind
        "10000007",
        "14020000" "00000001" "00000000" "00",  # unknown flag
        "16010007",
        "14000007" "00000001" "00000000",  # data without a payload
        "11000102" "1122334455667788",  # a hello without room for a token
        "13000007" "0000000000000005" "00",
        "15000007" "00000000",  # no range
        "15000007" "09000000" + "00" * 144,  # nine
        *("15000007" "01" + zeros + "0" * 16 + "0000000000000003" for zeros in ("010000", "000100", "000001")),
        "15000007" "01000000" "0000000000000004" "0000000000000003",  # low > high
        "15000007" "01000000" "0000000000000004" "ffffffffffffffff",
        "15000007" "02000000" + "0" * 16 + "0000000000000003" "0000000000000005" "0000000000000006",  # oldest first
        "15000007" "02000000" "0000000000000004" "0000000000000006" "0000000000000000" "0000000000000003",  # they touch
        "15000007" "01000000" "0000000000000000",  # too short
        "16000007" "00",
    ],
)  # fmt: skip
def test_anything_else_is_refused(bad: str) -> None:
    assert _testing.rewrite_datagram(bytes.fromhex(bad)) is None


def test_random_bytes_are_refused_or_written_again_as_they_were() -> None:
    rng = random.Random(1)
    read = 0
    for _ in range(20_000):
        _, golden = rng.choice(list(GOLDEN.values()))
        datagram = bytearray.fromhex(golden)
        for _ in range(rng.randrange(4)):
            datagram[rng.randrange(len(datagram))] = rng.randrange(256)
        datagram = datagram[: rng.randrange(len(datagram) + 1)] if rng.random() < 0.2 else datagram
        again = _testing.rewrite_datagram(bytes(datagram))
        if again is not None:
            read += 1
            header = 12 if datagram[0] & 15 == DATA else len(datagram)
            assert again[:header] == datagram[:header]
            assert len(again) == len(datagram)
    assert read > 1000


@pytest.mark.parametrize(
    ("low", "expected", "number"),
    [
        (5, 5, 5),
        (0, 0xFFFF_FFFF, 0x1_0000_0000),
        (0xFFFF_FFFF, 0x1_0000_0000, 0xFFFF_FFFF),
        (7, 0x1_0000_0005, 0x1_0000_0007),
        (0xFFFF_FFFF, 2, 0xFFFF_FFFF),  # nothing is below 0
        (2, 0xFFFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_0000_0002),  # nor beyond 64 bits
    ],
)
def test_a_truncated_number_is_the_one_closest_to_what_is_expected(low: int, expected: int, number: int) -> None:
    """RFC 9000, appendix A.3."""
    assert _testing.expand_number(low, expected) == number
