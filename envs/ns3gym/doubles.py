"""Rows of doubles as DataContainers of the protocol, without numpy, which a worker process does not import."""

from __future__ import annotations

from collections.abc import Sequence

from bbrgym.envs.ns3gym import ns3gym_pb2 as pb


def pack_doubles(values: Sequence[float]) -> pb.DataContainer:
    """Return a Box of DOUBLE with one dimension."""
    container = pb.DataContainer(type=pb.Box)
    container.data.Pack(pb.BoxDataContainer(dtype=pb.DOUBLE, shape=[len(values)], doubleData=values))
    return container


def unpack_doubles(container: pb.DataContainer) -> Sequence[float]:
    """Return the values of a Box of DOUBLE; none if the container holds something else.

    Raises:
        google.protobuf.message.DecodeError: the bytes inside are not a message.
    """
    box = pb.BoxDataContainer()
    container.data.Unpack(box)
    return box.doubleData
