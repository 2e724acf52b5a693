"""Converts Gymnasium's spaces and their values to messages of the ns3-gym protocol, and back.

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
"""Most elements of a Box; a peer that claims more is refused before anything is allocated."""


def pack_space(space: spaces.Space[Any], name: str = "") -> pb.SpaceDescription:
    """Return the description of a space.

    Args:
        space: Discrete from 0, Box, or Tuple or Dict of them. A Box whose elements have different bounds is described
            by the lowest and the highest, because the message has one of each.
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
        raise ValueError(f"a space must be a Discrete (from 0), Box, Tuple or Dict, got {space}")
    description = pb.SpaceDescription(type=kind, name=name)
    description.space.Pack(content)
    return description


def unpack_space(description: pb.SpaceDescription) -> spaces.Space[Any]:
    """Return the space of a description. Integers of a Box have 32 bits, and its bounds are clipped to their range.

    Raises:
        ValueError: it does not describe a valid space.
        google.protobuf.message.DecodeError: the bytes inside are not a message.
    """
    if description.type == pb.Discrete:
        n = _open(description.space, pb.DiscreteSpace()).n
        if n < 1:
            raise ValueError(f"n of a Discrete space must be >= 1, got {n}")
        return spaces.Discrete(n)
    if description.type == pb.Box:
        return _unpack_box(_open(description.space, pb.BoxSpace()))
    if description.type == pb.Tuple:
        return spaces.Tuple([unpack_space(element) for element in _open(description.space, pb.TupleSpace()).element])
    if description.type == pb.Dict:
        elements = _open(description.space, pb.DictSpace()).element
        return spaces.Dict([(element.name, unpack_space(element)) for element in elements])
    raise ValueError(f"unknown type {description.type} of a space; known: 1 Discrete, 2 Box, 3 Tuple, 4 Dict")


def pack_data(space: spaces.Space[Any], value: Any, name: str = "", *, is_action: bool = False) -> pb.DataContainer:
    """Return a value of a space as a message.

    Args:
        space: as `pack_space` takes it.
        value: an element of it.
        name: its key in a Dict.
        is_action: send doubles as floats, as stock clients do and stock simulations expect.

    Raises:
        ValueError: the value does not have the structure of the space, or an integer has more than 32 bits.
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
            raise ValueError(f"keys must be {sorted(space.spaces)}, got {sorted(value)}")
        elements = [pack_data(s, value[key], key, is_action=is_action) for key, s in space.spaces.items()]
        kind, content = pb.Dict, pb.DictDataContainer(element=elements)
    else:
        raise ValueError(f"a space must be a Discrete (from 0), Box, Tuple or Dict, got {space}")
    container = pb.DataContainer(type=kind, name=name)
    container.data.Pack(content)
    return container


def unpack_data(space: spaces.Space[Any], container: pb.DataContainer) -> Any:
    """Return the value in a container, with the structure of the space; a Box's is an array of its shape and type.

    The space's bounds are not checked: observations of many simulations exceed them.

    Raises:
        ValueError: it does not have the structure of the space.
        google.protobuf.message.DecodeError: the bytes inside are not a message.
    """
    if isinstance(space, spaces.Discrete):
        return np.int64(_open(container.data, pb.DiscreteDataContainer()).data)
    if isinstance(space, spaces.Box):
        return _unpack_array(space, _open(container.data, pb.BoxDataContainer()))
    if isinstance(space, spaces.Tuple):
        elements = _open(container.data, pb.TupleDataContainer()).element
        if len(elements) != len(space.spaces):
            raise ValueError(f"a Tuple must have {len(space.spaces)} elements, got {len(elements)}")
        return tuple(unpack_data(s, element) for s, element in zip(space.spaces, elements, strict=True))
    if isinstance(space, spaces.Dict):
        named = {element.name: element for element in _open(container.data, pb.DictDataContainer()).element}
        if set(named) != set(space.spaces):
            raise ValueError(f"keys must be {sorted(space.spaces)}, got {sorted(named)}")
        return {key: unpack_data(s, named[key]) for key, s in space.spaces.items()}
    raise ValueError(f"a space must be a Discrete (from 0), Box, Tuple or Dict, got {space}")


def _open(packed: any_pb2.Any, content: _Content) -> _Content:
    if not packed.Unpack(content):
        wanted = content.DESCRIPTOR.full_name
        raise ValueError(f"content must be 'type.googleapis.com/{wanted}', got {packed.type_url!r}")
    return content


def _unpack_box(box: pb.BoxSpace) -> spaces.Box[Any]:
    dtype = _NUMPY.get(box.dtype)
    if dtype is None:
        raise ValueError(f"unknown dtype {box.dtype} of a Box; known: 1 INT, 2 UINT, 3 FLOAT, 4 DOUBLE")
    if not box.low <= box.high:
        raise ValueError(f"bounds of a Box must rise, got {box.low} to {box.high}")
    shape = tuple(box.shape)
    if math.prod(shape) > _LARGEST_BOX:
        raise ValueError(f"a Box must have at most {_LARGEST_BOX} elements, got shape {shape}")
    low, high = box.low, box.high
    if issubclass(dtype, np.integer):
        limits = np.iinfo(dtype)
        low, high = (int(min(max(bound, limits.min), limits.max)) for bound in (low, high))
    return spaces.Box(low, high, shape, dtype)


def _pack_box(space: spaces.Box[Any], value: Any, is_action: bool) -> pb.BoxDataContainer:
    array = np.asarray(value)
    if array.size != math.prod(space.shape):
        raise ValueError(f"a value must have shape {space.shape}, got {array.shape}")
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
        raise ValueError(f"unknown dtype {box.dtype} of data; known: 1 INT, 2 UINT, 3 FLOAT, 4 DOUBLE")
    values: Sequence[float] = getattr(box, _FIELDS[box.dtype])
    if len(values) != math.prod(space.shape):
        raise ValueError(f"a Box of shape {space.shape} must have {math.prod(space.shape)} values, got {len(values)}")
    return np.array(values, dtype=_NUMPY[box.dtype]).astype(space.dtype).reshape(space.shape)


def _dtype(space: spaces.Box[Any]) -> pb.Dtype:
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        return pb.DOUBLE if dtype.itemsize > 4 else pb.FLOAT
    if dtype.kind in "ub":
        return pb.UINT
    if dtype.kind == "i":
        return pb.INT
    raise ValueError(f"a Box must be of integers, unsigned integers, float32 or float64, got {dtype}")


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
