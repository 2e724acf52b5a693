"""The protocol's bytes, and spaces and values as its messages."""

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym.doubles import pack_doubles, unpack_doubles
from bbrgym.envs.ns3gym.messages import pack_data, pack_space, unpack_data, unpack_space

# What stock peers send (Any, packed fields and all), byte for byte.
INIT = (
    "08d20910b0091a39080212350a27747970652e676f6f676c65617069732e636f6d2f6e73336f70656e67796d2e426f785370616365120a150000"
    "204118022201052236080112320a2c747970652e676f6f676c65617069732e636f6d2f6e73336f70656e67796d2e446973637265746553706163"
    "6512020805"
)
STATE = (
    "0a44080212400a2f747970652e676f6f676c65617069732e636f6d2f6e73336f70656e67796d2e426f7844617461436f6e7461696e6572120d08"
    "02120105220601020304ac02150000c03f2a026f6b"
)
ACTION_DISCRETE = (
    "0a3e0801123a0a34747970652e676f6f676c65617069732e636f6d2f6e73336f70656e67796d2e446973637265746544617461436f6e7461696e"
    "657212020803"
)
ACTION_BOX = (
    "0a46080212420a2f747970652e676f6f676c65617069732e636f6d2f6e73336f70656e67796d2e426f7844617461436f6e7461696e6572120f08"
    "031201022a080000a03f00000040"
)
COUNTS = spaces.Box(0, 10, (5,), np.uint32)
GAINS = spaces.Box(0.0, 4.0, (2,), np.float32)

EVERY_FORM: list[tuple[spaces.Space[Any], Any]] = [
    (spaces.Discrete(5), np.int64(3)),
    (COUNTS, np.array([1, 2, 3, 4, 300], np.uint32)),
    (spaces.Box(-5, 5, (2, 3), np.int32), np.arange(-3, 3, dtype=np.int32).reshape(2, 3)),
    (GAINS, np.array([1.25, 2.0], np.float32)),
    (spaces.Box(-np.inf, np.inf, (3,), np.float64), np.array([0.1, math.pi, -1e300])),
    (spaces.Box(0.0, 1.0, (), np.float32), np.array(0.5, np.float32)),
    (spaces.Box(0.0, 1.0, (0,), np.float32), np.zeros(0, np.float32)),
    (spaces.Tuple([spaces.Discrete(2), GAINS]), (np.int64(1), np.array([0.0, 4.0], np.float32))),
    (
        spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Dict({"c": COUNTS})}),
        {"a": np.int64(2), "b": {"c": np.array([0, 0, 0, 0, 7], np.uint32)}},
    ),
]


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    else:
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize(
    ("message", "stock"),
    [
        (
            pb.SimInitMsg(
                simProcessId=1234,
                wafShellProcessId=1200,
                obsSpace=pack_space(COUNTS),
                actSpace=pack_space(spaces.Discrete(5)),
            ),
            INIT,
        ),
        (pb.EnvStateMsg(obsData=pack_data(COUNTS, [1, 2, 3, 4, 300]), reward=1.5, info="ok"), STATE),
        (pb.SimInitAck(done=True), "0801"),
        (pb.EnvStateMsg(isGameOver=True, reason=pb.EnvStateMsg.SimulationEnd), "1801"),
        (pb.EnvStateMsg(isGameOver=True, reason=pb.EnvStateMsg.GameOver), "18012001"),
        (pb.EnvActMsg(stopSimReq=True), "1001"),
        (pb.EnvActMsg(actData=pack_data(spaces.Discrete(5), 3, is_action=True)), ACTION_DISCRETE),
        (pb.EnvActMsg(actData=pack_data(GAINS, [1.25, 2.0], is_action=True)), ACTION_BOX),
    ],
)
def test_messages_are_the_stock_ones(message: Any, stock: str) -> None:
    assert message.SerializeToString().hex() == stock
    assert type(message).FromString(bytes.fromhex(stock)) == message


def test_doubles_of_an_action_go_as_floats_and_are_taken_as_either() -> None:
    space = spaces.Box(0.0, 4.0, (2,), np.float64)
    action = pack_data(space, [1.25, 2.0], is_action=True)
    assert pb.EnvActMsg(actData=action).SerializeToString().hex() == ACTION_BOX
    for container in (action, pack_data(space, [1.25, 2.0])):
        assert_equal(unpack_data(space, container), np.array([1.25, 2.0]))


@pytest.mark.parametrize(("space", "value"), EVERY_FORM, ids=[str(space) for space, _ in EVERY_FORM])
def test_spaces_and_values_come_back(space: spaces.Space[Any], value: Any) -> None:
    description = pb.SpaceDescription.FromString(pack_space(space, "name").SerializeToString())
    container = pb.DataContainer.FromString(pack_data(space, value, "name").SerializeToString())
    assert description.name == container.name == "name"
    if space.shape != (0,):  # no element, no bounds
        assert unpack_space(description) == space
    assert_equal(unpack_data(space, container), value)


def test_bounds_of_a_box_are_one_pair_and_those_of_integers_in_32_bits() -> None:
    description = pb.SpaceDescription(type=pb.Box)
    description.space.Pack(pb.BoxSpace(low=-math.inf, high=1e12, dtype=pb.UINT, shape=[2]))
    assert unpack_space(description) == spaces.Box(0, 2**32 - 1, (2,), np.uint32)
    space = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 8.0]), dtype=np.float64)
    assert unpack_space(pack_space(space)) == spaces.Box(-1.0, 8.0, (2,), np.float64)


@pytest.mark.parametrize("space", [spaces.MultiBinary(3), spaces.Discrete(3, start=1), spaces.Text(3)], ids=str)
def test_other_spaces_are_refused(space: spaces.Space[Any]) -> None:
    reason = f"a space must be a Discrete (from 0), Box, Tuple or Dict, got {space}"
    for outer in (space, spaces.Tuple([space])):
        with pytest.raises(ValueError, match=re.escape(reason)):
            pack_space(outer)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pb.BoxSpace(low=1, high=0, dtype=pb.INT, shape=[1]), "must rise"),
        (pb.BoxSpace(low=math.nan, high=0, dtype=pb.INT, shape=[1]), "must rise"),
        (pb.BoxSpace(low=0, high=1, shape=[1]), "dtype 0"),
        (pb.BoxSpace(low=0, high=1, dtype=pb.DOUBLE, shape=[2**31, 2**31]), "at most 16777216 elements"),
        (pb.DiscreteSpace(n=3), r"content must be 'type\.googleapis\.com/ns3opengym\.BoxSpace', got"),
    ],
)
def test_impossible_boxes_are_refused(content: Any, reason: str) -> None:
    description = pb.SpaceDescription(type=pb.Box)
    description.space.Pack(content)
    with pytest.raises(ValueError, match=reason):
        unpack_space(description)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (GAINS, [1.0]),
        (spaces.Box(0, 2**40, (1,), np.int64), [2**40]),
        (spaces.Tuple([GAINS]), ()),
        (spaces.Dict({"a": GAINS}), {"b": [1.0, 2.0]}),
    ],
)
def test_values_and_data_of_another_form_are_refused(space: spaces.Space[Any], value: Any) -> None:
    with pytest.raises(ValueError, match=r"must (have|be)|[Vv]alue out of range|shorter"):
        pack_data(space, value)
    with pytest.raises(ValueError, match=r"must (have|be)|unknown"):
        unpack_data(space, pack_doubles([1.0] * 3))


def test_doubles_are_exact() -> None:
    values = [0.1, -0.0, math.inf, 5e-324]
    container = pack_doubles([*values, math.nan])
    *same, nan = unpack_doubles(container)
    assert same == values
    assert math.isnan(nan)
    assert container == pack_data(spaces.Box(-np.inf, np.inf, (5,), np.float64), [*values, math.nan])
    assert list(unpack_doubles(pb.DataContainer())) == []


def test_messages_agree_with_their_source(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    folder = Path(pb.__file__).parent
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={tmp_path}", "ns3gym.proto"]
    subprocess.run(protoc, check=True)
    fresh, committed = (
        next(line for line in file.read_text().splitlines() if line.startswith("DESCRIPTOR = "))
        for file in (tmp_path / "ns3gym_pb2.py", Path(pb.__file__))
    )
    assert fresh == committed
