"""What a score judges: an algorithm, a trained policy, a model of another library, a Python callable, or a C file."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bbrgym.agents.importers import import_model
from bbrgym.baselines import registry
from bbrgym.baselines.controller_file import compile_controller
from bbrgym.baselines.policy_file import SCRIPTED, find_policy
from bbrgym.benchmark.plan import Competitor
from bbrgym.benchmark.sandboxed import Confinement
from bbrgym.files import user_cache

_MODELS: Final = (".onnx", ".zip", ".cleanrl_model")
"""Suffixes of files of other libraries (docs/import.md)."""


@dataclass(frozen=True)
class Candidate:
    """What drives flows, and how it must be confined.

    Attributes:
        what: as it was given.
        competitor: drives flows; named so in tables.
        confinement: of the processes that run it.
        function: a Python callable, `module:name`.
    """

    what: str
    competitor: Competitor
    confinement: Confinement = "none"
    function: str | None = None

    @classmethod
    def of(cls, what: str, parameters: Mapping[str, float] | None = None) -> Candidate:
        """Return the candidate that a text names.

        Args:
            what: the path of a C file, of a training run, of an agent's folder or its `policy.npz`, or of a model of
                Stable-Baselines3, CleanRL or ONNX; `module:callable`; or the name of an algorithm.
            parameters: of an algorithm or of a C file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is none of these, cannot be read or compiled, or takes no such parameters.
            ModuleNotFoundError: the library of a model is not installed.
        """
        given = dict(parameters or {})
        path = Path(what).expanduser()
        if path.suffix == ".c":
            library = str(compile_controller(path))
            return cls(what, Competitor(path.stem, registry.FILE, given, file=library), "c")
        if what in registry.controllers():
            registry.check_parameters(what, given)
            return cls(what, Competitor(what, what, given))
        if given:
            raise ValueError(f"only algorithms and C files take parameters, got {', '.join(given)} for '{what}'")
        if path.suffix in _MODELS:
            return cls(what, Competitor(path.stem, "policy", policy=str(_imported(path))))
        if path.exists():
            folder = find_policy(path.parent if path.name == "policy.npz" else path)
            return cls(what, Competitor(path.resolve().name, "policy", policy=str(folder.absolute())))
        if what.startswith(SCRIPTED):
            raise ValueError(f"the scripted agent {what!r} has no network: a score takes policies, not scripted agents")
        module, colon, name = what.partition(":")
        if colon and module and name:
            return cls(what, Competitor(name, "agent"), "python", what)
        raise ValueError(
            f"'{what}' is no file, no folder and no module:callable, and no algorithm; known algorithms: "
            f"{', '.join(registry.controllers())}"
        )

    def with_parameters(self, parameters: Mapping[str, float]) -> Candidate:
        """Return the candidate with other parameters."""
        return dataclasses.replace(self, competitor=dataclasses.replace(self.competitor, parameters=dict(parameters)))


def _imported(path: Path) -> Path:
    """Return the folder of the agent that a model of another library becomes, with the default observation."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file '{path}'")
    folder = user_cache("imported") / hashlib.sha256(path.read_bytes()).hexdigest()[:20]
    if not (folder / "agent.json").is_file():
        import_model(path, {"scenario": {"flows": [{"algorithm": "agent"}]}}).save(folder)
    return folder
