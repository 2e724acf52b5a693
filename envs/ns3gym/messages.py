"""Gymnasium's spaces and their values as messages of the ns3-gym protocol, and back.

The protocol has Discrete, Box, Tuple and Dict. Its Box has one lower and one upper bound for all elements, in single
precision, and its values are flat lists of 32-bit integers, floats or doubles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf import any_pb2
from google.protobuf.message import Message
from gymnasium import spaces

from bbrgym.envs.ns3gym import ns3gym_pb2 as pb

_Content = TypeVar("_Content", bound=Message)

_LARGEST_BOX: Final = 2**24
"""Elements of a Box; what a peer claims beyond that is an error, not an allocation."""


def pack_space(space: spaces.Space[Any], name: str = "") -> pb.SpaceDescription:
    """The description of a space.

    Args:
        space: Discrete from 0, Box, Tuple or Dict of such. Of a Box with different bounds for its elements the lowest
            and the highest are given, because the message has no room for more.
        name: its key in a Dict.

    Raises:
        ValueError: another space.
    """
    content: Message
    if isinstance(space, spaces.Discrete) and space.start == 0:
        kind, content = pb.Discrete, pb.DiscreteSpace(n=int(space.n))
    elif isinstance(space, spaces.Box):
        low, high = (float(space.low.min()), float(space.high.max())) if space.low.size else (0.0, 0.0)
        kind, content = pb.Box, pb.BoxSpace(low=low, high=high, dtype=_dtype(space), shape=space.shape)
    elif isinstance(space, spaces.Tuple):
        kind, content = pb.Tuple, pb.TupleSpace(element=[pack_space(element) for element in space.spaces])
    elif isinstance(space, spaces.Dict):
        elements = [pack_space(element, key) for key, element in space.spaces.items()]
        kind, content = pb.Dict, pb.DictSpace(element=elements)
    else:
        raise ValueError(f"ns3-gym has no space like {space}; known: Discrete (from 0), Box, Tuple, Dict")
    description = pb.SpaceDescription(type=kind, name=name)
    description.space.Pack(content)
    return description


def unpack_space(description: pb.SpaceDescription) -> spaces.Space[Any]:
    """The space of a description: integers of a Box are 32-bit, and bounds beyond its type's range are brought into it.

    Raises:
        ValueError: it describes none, or an impossible one.
        google.protobuf.message.DecodeError: the bytes inside are not a message.
    """
    if description.type == pb.Discrete:
        n = _open(description.space, pb.DiscreteSpace()).n
        if n < 1:
            raise ValueError(f"a Discrete space of n={n} is not possible: n must be at least 1")
        return spaces.Discrete(n)
    if description.type == pb.Box:
        return _unpack_box(_open(description.space, pb.BoxSpace()))
    if description.type == pb.Tuple:
        return spaces.Tuple([unpack_space(element) for element in _open(description.space, pb.TupleSpace()).element])
    if description.type == pb.Dict:
        elements = _open(description.space, pb.DictSpace()).element
        return spaces.Dict([(element.name, unpack_space(element)) for element in elements])
    raise ValueError(f"a space of type {description.type} is not possible; known: 1 Discrete, 2 Box, 3 Tuple, 4 Dict")


def pack_data(space: spaces.Space[Any], value: Any, name: str = "", *, is_action: bool = False) -> pb.DataContainer:
    """A value of a space.

    Args:
        space: as `pack_space` takes it.
        value: an element of it.
        name: its key in a Dict.
        is_action: send doubles as floats, as stock clients do and stock simulations expect of an action.

    Raises:
        ValueError: the value does not have the form of the space's, or an integer has more than 32 bits.
    """
    content: Message
    if isinstance(space, spaces.Discrete):
        kind, content = pb.Discrete, pb.DiscreteDataContainer(data=int(value))
    elif isinstance(space, spaces.Box):
        kind, content = pb.Box, _pack_box(space, value, is_action)
    elif isinstance(space, spaces.Tuple):
        elements = [pack_data(s, v, is_action=is_action) for s, v in zip(space.spaces, value, strict=True)]
        kind, content = pb.Tuple, pb.TupleDataContainer(element=elements)
    elif isinstance(space, spaces.Dict):
        if set(value) != set(space.spaces):
            raise ValueError(f"keys {sorted(value)} are not possible: they must be {sorted(space.spaces)}")
        elements = [pack_data(s, value[key], key, is_action=is_action) for key, s in space.spaces.items()]
        kind, content = pb.Dict, pb.DictDataContainer(element=elements)
    else:
        raise ValueError(f"ns3-gym has no space like {space}; known: Discrete (from 0), Box, Tuple, Dict")
    container = pb.DataContainer(type=kind, name=name)
    container.data.Pack(content)
    return container


def unpack_data(space: spaces.Space[Any], container: pb.DataContainer) -> Any:
    """The value in a container, in the form of the space: a Box's as an array of its shape and type.

    Whether it is within the space's bounds is not looked at: many a simulation's observations are not.

    Raises:
        ValueError: it does not have the form of the space's.
        google.protobuf.message.DecodeError: the bytes inside are not a message.
    """
    if isinstance(space, spaces.Discrete):
        return np.int64(_open(container.data, pb.DiscreteDataContainer()).data)
    if isinstance(space, spaces.Box):
        return _unpack_array(space, _open(container.data, pb.BoxDataContainer()))
    if isinstance(space, spaces.Tuple):
        elements = _open(container.data, pb.TupleDataContainer()).element
        if len(elements) != len(space.spaces):
            raise ValueError(f"{len(elements)} elements are not possible: they must be {len(space.spaces)}")
        return tuple(unpack_data(s, element) for s, element in zip(space.spaces, elements, strict=True))
    if isinstance(space, spaces.Dict):
        named = {element.name: element for element in _open(container.data, pb.DictDataContainer()).element}
        if set(named) != set(space.spaces):
            raise ValueError(f"keys {sorted(named)} are not possible: they must be {sorted(space.spaces)}")
        return {key: unpack_data(s, named[key]) for key, s in space.spaces.items()}
    raise ValueError(f"ns3-gym has no space like {space}; known: Discrete (from 0), Box, Tuple, Dict")


def _open(packed: any_pb2.Any, content: _Content) -> _Content:
    if not packed.Unpack(content):
        wanted = content.DESCRIPTOR.full_name
        raise ValueError(f"content {packed.type_url!r} is not possible: it must be 'type.googleapis.com/{wanted}'")
    return content


def _unpack_box(box: pb.BoxSpace) -> spaces.Box[Any]:
    dtype = _NUMPY.get(box.dtype)
    if dtype is None:
        raise ValueError(f"a Box of dtype {box.dtype} is not possible; known: 1 INT, 2 UINT, 3 FLOAT, 4 DOUBLE")
    if not box.low <= box.high:
        raise ValueError(f"a Box from {box.low} to {box.high} is not possible: its bounds must rise")
    shape = tuple(box.shape)
    if math.prod(shape) > _LARGEST_BOX:
        raise ValueError(f"a Box of shape {shape} is not possible: it must have at most {_LARGEST_BOX} elements")
    low, high = box.low, box.high
    if issubclass(dtype, np.integer):
        limits = np.iinfo(dtype)
        low, high = (int(min(max(bound, limits.min), limits.max)) for bound in (low, high))
    return spaces.Box(low, high, shape, dtype)


def _pack_box(space: spaces.Box[Any], value: Any, is_action: bool) -> pb.BoxDataContainer:
    array = np.asarray(value)
    if array.size != math.prod(space.shape):
        raise ValueError(f"a value of shape {array.shape} is not possible: it must be {space.shape}")
    dtype = _dtype(space)
    if is_action and dtype == pb.DOUBLE:
        dtype = pb.FLOAT
    flat: list[Any] = array.astype(space.dtype, copy=False).ravel().tolist()
    box = pb.BoxDataContainer(dtype=dtype, shape=[len(flat)])
    values: Any = getattr(box, _FIELDS[dtype])
    values.extend(flat)
    return box


def _unpack_array(space: spaces.Box[Any], box: pb.BoxDataContainer) -> npt.NDArray[Any]:
    if box.dtype not in _FIELDS:
        raise ValueError(f"data of dtype {box.dtype} is not possible; known: 1 INT, 2 UINT, 3 FLOAT, 4 DOUBLE")
    values: Sequence[float] = getattr(box, _FIELDS[box.dtype])
    if len(values) != math.prod(space.shape):
        raise ValueError(f"{len(values)} values are not possible: a Box of shape {space.shape} holds them")
    return np.array(values, dtype=_NUMPY[box.dtype]).astype(space.dtype).reshape(space.shape)


def _dtype(space: spaces.Box[Any]) -> pb.Dtype:
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        return pb.DOUBLE if dtype.itemsize > 4 else pb.FLOAT
    if dtype.kind in "ub":
        return pb.UINT
    if dtype.kind == "i":
        return pb.INT
    raise ValueError(f"ns3-gym has no Box of {dtype}; known: integers, unsigned integers, float32, float64")


_NUMPY: Final[dict[int, type[np.generic]]] = {
    pb.INT: np.int32,
    pb.UINT: np.uint32,
    pb.FLOAT: np.float32,
    pb.DOUBLE: np.float64,
}
_FIELDS: Final[dict[int, str]] = {
    pb.INT: "intData",
    pb.UINT: "uintData",
    pb.FLOAT: "floatData",
    pb.DOUBLE: "doubleData",
}
