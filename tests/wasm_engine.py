"""The WebAssembly module in wasmtime, without a browser."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import wasmtime

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS

Rows = tuple[float, npt.NDArray[np.float64], npt.NDArray[np.float64]]


class WasmEngine:
    """What playground/engine.js is in a browser.

    Args:
        path: engine.wasm.
        policies: bytes by the names that flows give.
    """

    def __init__(self, path: Path, policies: Mapping[str, bytes]) -> None:
        engine = wasmtime.Engine()
        self._store = wasmtime.Store(engine)
        self._store.set_wasi(wasmtime.WasiConfig())
        linker = wasmtime.Linker(engine)
        linker.define_wasi()
        self._exports = linker.instantiate(self._store, wasmtime.Module.from_file(engine, str(path))).exports(
            self._store
        )
        self._call("_initialize")
        for name, policy in policies.items():
            self._call("add_policy", self._put(name.encode() + b"\0"), self._put(policy), len(policy))

    def names(self) -> list[list[str]]:
        """Return the columns of flows, those of the link, and the algorithms."""
        pointer = self._call("names")
        text = self._exports["memory"].read(self._store, pointer, pointer + 10_000).partition(b"\0")[0].decode()
        return [line.split(",") for line in text.split("\n")]

    def run(
        self, scenario: Mapping[str, Any], seed: int, step_ms: float = 100.0, changes: Mapping[int, Any] | None = None
    ) -> Iterator[Rows]:
        """Yield time, rows of flows and row of the link after each step. `changes` has scenarios by step."""
        count = len(scenario["flows"])
        handle = self._call("start", self._put(json.dumps(scenario).encode() + b"\0"), float(seed))
        is_over, step = False, 0
        while not is_over:
            if changes and step in changes:
                self._call("change", handle, self._put(json.dumps(changes[step]).encode() + b"\0"))
            is_over = bool(self._call("step", handle, step_ms))
            step += 1
            yield (
                self._call("time_s", handle),
                self._numbers(self._call("flow_rows", handle), count * len(FLOW_COLUMNS)).reshape(count, -1),
                self._numbers(self._call("link_row", handle), len(LINK_COLUMNS)),
            )
        self._call("end", handle)

    def _call(self, name: str, *arguments: float) -> Any:
        return self._exports[name](self._store, *arguments)

    def _put(self, content: bytes) -> int:
        pointer: int = self._call("allocate", len(content))
        self._exports["memory"].write(self._store, content, pointer)
        return pointer

    def _numbers(self, pointer: int, count: int) -> npt.NDArray[np.float64]:
        content = self._exports["memory"].read(self._store, pointer, pointer + 8 * count)
        return np.frombuffer(bytes(content), dtype="<f8")
