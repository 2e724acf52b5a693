"""The wire format of the transport over UDP: golden bytes, and what a host refuses."""

import re
from pathlib import Path

import pytest

from bbrgym import _testing

HELLO, RETRY, WELCOME, DATA, ACK, END, REPORT, BUSY = range(1, 9)
MARKS = "0" * 16  # none
TOKEN = bytes(range(16))
FIELDS = {
    "hello": {"kind": HELLO, "time": 0x1122334455667788, "token": TOKEN},
    "retry": {"kind": RETRY, "time": 5, "token": b"\xff" * 16},
    "welcome": {"kind": WELCOME, "connection": 7, "time": 5},
    "data": {"kind": DATA, "connection": 7, "number": 0x01020304, "segment": 9, "bytes": 2},
    "retransmission": {"kind": DATA, "number": 1, "bytes": 1, "is_retransmission": True},
    "ack": {"kind": ACK, "connection": 7, "ranges": [(5, 0x1_0000_0000), (0, 3)], "marked": 3000},
    "end": {"kind": END, "connection": 7, "token": TOKEN, "totals": [9, 9000]},
    "last end": {"kind": END, "connection": 7, "token": TOKEN, "totals": [9, 9000], "is_last": True},
    "report": {"kind": REPORT, "connection": 7, "totals": [8000, 9000, 9, 1]},
    "busy": {"kind": BUSY, "time": 5},
}
PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
GOLDEN = {
    name: "".join(re.findall("[0-9a-f]+", row))
    for name, row in re.findall(r"^\| ([a-z ]+) \| (`[0-9a-f` ]+`) \|$", PAGE, re.M)
}


def test_the_page_has_every_kind() -> None:
    assert list(GOLDEN) == list(FIELDS)
    assert {int(datagram[1], 16) for datagram in GOLDEN.values()} == set(range(1, 9))


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name: str) -> None:
    written = _testing.write_datagram(**FIELDS[name])  # type: ignore[arg-type]
    assert written.hex() == GOLDEN[name]
    assert _testing.rewrite_datagram(written) == written


def test_an_ack_has_up_to_eight_ranges() -> None:
    written = _testing.write_datagram(kind=ACK, ranges=[(n, n) for n in range(16, 0, -2)])
    assert written.hex() == "3500000008000000" + MARKS + "".join(f"{n:016x}{n:016x}" for n in range(16, 0, -2))
    assert _testing.rewrite_datagram(written) == written


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "34",
        "24000007" "00000001" "00000000" "00",  # version 2
        "3f000007",  # unknown kind
        "34020000" "00000001" "00000000" "00",  # unknown flag
        "31010000" + "00" * 24,  # a hello has no flag
        "34000007" "00000001" "00000000",  # data without a payload
        "31000102" "1122334455667788",  # a hello without room for a token
        "35000007" "00000000" + MARKS,  # no range
        "35000007" "09000000" + MARKS + "00" * 144,  # nine
        *("35000007" "01" + zeros + MARKS + "0" * 16 + "0000000000000003" for zeros in ("010000", "000100", "000001")),
        "35000007" "01000000" + MARKS + "0000000000000004" "0000000000000003",  # low > high
        # Oldest first, and then two ranges that touch.
        "35000007" "02000000" + MARKS + "0" * 16 + "0000000000000003" "0000000000000005" "0000000000000006",
        "35000007" "02000000" + MARKS + "0000000000000004" "0000000000000006" "0000000000000000" "0000000000000003",
        "35000007" "01000000" "0000000000000000" "0000000000000000",  # too short
        "35000007" "01000000" "8000000000000000" + "0" * 16 + "0000000000000003",  # more marks than fit
    ],
)  # fmt: skip
def test_anything_else_is_refused(bad: str) -> None:
    assert _testing.rewrite_datagram(bytes.fromhex(bad)) is None


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


def test_siphash_of_its_paper() -> None:
    """Appendix A of Aumasson and Bernstein (2012): the key is 00 … 0f, the message 00 … 0e."""
    key = bytes(range(16))
    low, high = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    assert _testing.siphash(low, high, bytes(range(15))) == 0xA129CA6149BE45E5


def test_a_token_is_for_one_peer_one_key_and_ten_seconds() -> None:
    peer, other = b"\1" * 18, b"\1" * 17 + b"\2"
    made = 5 * 10**9
    token = _testing.make_token(7, peer, made)
    assert _testing.is_token_valid(token, 7, peer, made)
    assert _testing.is_token_valid(token, 7, peer, made + 10 * 10**9)
    assert not _testing.is_token_valid(token, 7, peer, made + 10 * 10**9 + 1)
    assert not _testing.is_token_valid(token, 7, peer, made - 1)
    assert not _testing.is_token_valid(token, 7, other, made)
    assert not _testing.is_token_valid(token, 8, peer, made)
    assert not _testing.is_token_valid(bytes(16), 7, peer, made)
    for at in range(16):
        changed = token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :]
        assert not _testing.is_token_valid(changed, 7, peer, made)
