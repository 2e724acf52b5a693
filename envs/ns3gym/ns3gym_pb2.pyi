# mypy: disable-error-code="type-arg"
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SpaceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NoSpaceType: _ClassVar[SpaceType]
    Discrete: _ClassVar[SpaceType]
    Box: _ClassVar[SpaceType]
    Tuple: _ClassVar[SpaceType]
    Dict: _ClassVar[SpaceType]

class Dtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NoDType: _ClassVar[Dtype]
    INT: _ClassVar[Dtype]
    UINT: _ClassVar[Dtype]
    FLOAT: _ClassVar[Dtype]
    DOUBLE: _ClassVar[Dtype]
NoSpaceType: SpaceType
Discrete: SpaceType
Box: SpaceType
Tuple: SpaceType
Dict: SpaceType
NoDType: Dtype
INT: Dtype
UINT: Dtype
FLOAT: Dtype
DOUBLE: Dtype

class SpaceDescription(_message.Message):
    __slots__ = ("type", "space", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: SpaceType
    space: _any_pb2.Any
    name: str
    def __init__(self, type: _Optional[_Union[SpaceType, str]] = ..., space: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class DiscreteSpace(_message.Message):
    __slots__ = ("n",)
    N_FIELD_NUMBER: _ClassVar[int]
    n: int
    def __init__(self, n: _Optional[int] = ...) -> None: ...

class BoxSpace(_message.Message):
    __slots__ = ("low", "high", "dtype", "shape")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    low: float
    high: float
    dtype: Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, low: _Optional[float] = ..., high: _Optional[float] = ..., dtype: _Optional[_Union[Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class TupleSpace(_message.Message):
    __slots__ = ("element",)
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    element: _containers.RepeatedCompositeFieldContainer[SpaceDescription]
    def __init__(self, element: _Optional[_Iterable[_Union[SpaceDescription, _Mapping]]] = ...) -> None: ...

class DictSpace(_message.Message):
    __slots__ = ("element",)
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    element: _containers.RepeatedCompositeFieldContainer[SpaceDescription]
    def __init__(self, element: _Optional[_Iterable[_Union[SpaceDescription, _Mapping]]] = ...) -> None: ...

class DataContainer(_message.Message):
    __slots__ = ("type", "data", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: SpaceType
    data: _any_pb2.Any
    name: str
    def __init__(self, type: _Optional[_Union[SpaceType, str]] = ..., data: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class DiscreteDataContainer(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: int
    def __init__(self, data: _Optional[int] = ...) -> None: ...

class BoxDataContainer(_message.Message):
    __slots__ = ("dtype", "shape", "intData", "uintData", "floatData", "doubleData")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    INTDATA_FIELD_NUMBER: _ClassVar[int]
    UINTDATA_FIELD_NUMBER: _ClassVar[int]
    FLOATDATA_FIELD_NUMBER: _ClassVar[int]
    DOUBLEDATA_FIELD_NUMBER: _ClassVar[int]
    dtype: Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    intData: _containers.RepeatedScalarFieldContainer[int]
    uintData: _containers.RepeatedScalarFieldContainer[int]
    floatData: _containers.RepeatedScalarFieldContainer[float]
    doubleData: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, dtype: _Optional[_Union[Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., intData: _Optional[_Iterable[int]] = ..., uintData: _Optional[_Iterable[int]] = ..., floatData: _Optional[_Iterable[float]] = ..., doubleData: _Optional[_Iterable[float]] = ...) -> None: ...

class TupleDataContainer(_message.Message):
    __slots__ = ("element",)
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    element: _containers.RepeatedCompositeFieldContainer[DataContainer]
    def __init__(self, element: _Optional[_Iterable[_Union[DataContainer, _Mapping]]] = ...) -> None: ...

class DictDataContainer(_message.Message):
    __slots__ = ("element",)
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    element: _containers.RepeatedCompositeFieldContainer[DataContainer]
    def __init__(self, element: _Optional[_Iterable[_Union[DataContainer, _Mapping]]] = ...) -> None: ...

class SimInitMsg(_message.Message):
    __slots__ = ("simProcessId", "wafShellProcessId", "obsSpace", "actSpace", "error")
    SIMPROCESSID_FIELD_NUMBER: _ClassVar[int]
    WAFSHELLPROCESSID_FIELD_NUMBER: _ClassVar[int]
    OBSSPACE_FIELD_NUMBER: _ClassVar[int]
    ACTSPACE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    simProcessId: int
    wafShellProcessId: int
    obsSpace: SpaceDescription
    actSpace: SpaceDescription
    error: str
    def __init__(self, simProcessId: _Optional[int] = ..., wafShellProcessId: _Optional[int] = ..., obsSpace: _Optional[_Union[SpaceDescription, _Mapping]] = ..., actSpace: _Optional[_Union[SpaceDescription, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class SimInitAck(_message.Message):
    __slots__ = ("done", "stopSimReq", "scenario", "seed", "policies")
    class PoliciesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    DONE_FIELD_NUMBER: _ClassVar[int]
    STOPSIMREQ_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    done: bool
    stopSimReq: bool
    scenario: str
    seed: int
    policies: _containers.ScalarMap[int, bytes]
    def __init__(self, done: _Optional[bool] = ..., stopSimReq: _Optional[bool] = ..., scenario: _Optional[str] = ..., seed: _Optional[int] = ..., policies: _Optional[_Mapping[int, bytes]] = ...) -> None: ...

class EnvStateMsg(_message.Message):
    __slots__ = ("obsData", "reward", "isGameOver", "reason", "info", "error", "timing")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SimulationEnd: _ClassVar[EnvStateMsg.Reason]
        GameOver: _ClassVar[EnvStateMsg.Reason]
    SimulationEnd: EnvStateMsg.Reason
    GameOver: EnvStateMsg.Reason
    class TimingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    OBSDATA_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    ISGAMEOVER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    obsData: DataContainer
    reward: float
    isGameOver: bool
    reason: EnvStateMsg.Reason
    info: str
    error: str
    timing: _containers.ScalarMap[str, float]
    def __init__(self, obsData: _Optional[_Union[DataContainer, _Mapping]] = ..., reward: _Optional[float] = ..., isGameOver: _Optional[bool] = ..., reason: _Optional[_Union[EnvStateMsg.Reason, str]] = ..., info: _Optional[str] = ..., error: _Optional[str] = ..., timing: _Optional[_Mapping[str, float]] = ...) -> None: ...

class EnvActMsg(_message.Message):
    __slots__ = ("actData", "stopSimReq", "step_ns")
    ACTDATA_FIELD_NUMBER: _ClassVar[int]
    STOPSIMREQ_FIELD_NUMBER: _ClassVar[int]
    STEP_NS_FIELD_NUMBER: _ClassVar[int]
    actData: DataContainer
    stopSimReq: bool
    step_ns: int
    def __init__(self, actData: _Optional[_Union[DataContainer, _Mapping]] = ..., stopSimReq: _Optional[bool] = ..., step_ns: _Optional[int] = ...) -> None: ...
