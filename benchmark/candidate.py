"""What a score judges: an algorithm, a policy, a model of another library, a Python callable, a C file, or a stack."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

import bbrgym
from bbrgym.agents import importers
from bbrgym.agents.importers import import_model
from bbrgym.baselines import registry
from bbrgym.baselines.controller_file import compile_controller
from bbrgym.baselines.policy_file import FILES, SCRIPTED, find_policy
from bbrgym.benchmark.plan import Competitor
from bbrgym.benchmark.sandbox import MEBIBYTES, Confinement
from bbrgym.checks import check_keys, did_you_mean
from bbrgym.files import user_cache

_MODELS: Final = (".onnx", ".zip", ".cleanrl_model")
"""Suffixes of files of other libraries (docs/import.md)."""


STACKS: Final = (".yaml", ".yml", ".json")
"""Suffixes of files of two commands."""


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
    def of(
        cls, what: str, parameters: Mapping[str, float] | None = None, engine: Literal["native", "linux"] = "native"
    ) -> Candidate:
        """Return the candidate that a text names.

        Args:
            what: the path of a C file, of a training run, of an agent's folder or its `policy.npz`, or of a model of
                Stable-Baselines3, CleanRL or ONNX; `module:callable`; or the name of an algorithm. In the engine linux
                also a kernel's algorithm (`linux-cubic`) or the path of a file of two commands (docs/stacks.md), but
                no code in C or Python.
            parameters: of an algorithm or of a C file.
            engine: where it is judged.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is none of these, cannot be read or compiled, does not run in the engine, or takes no such
                parameters.
            ModuleNotFoundError: the library of a model is not installed.
        """
        found = cls._found(what, dict(parameters or {}))
        competitor = found.competitor
        if engine == "native" and competitor.algorithm in (registry.COMMAND, *registry.LINUX_COMPARATORS):
            raise ValueError(f"'{what}' runs in the Linux engine only: add --engine linux")
        if engine == "linux" and found.confinement != "none":
            raise ValueError(
                f"code in C and in Python is judged in the engine native only, where it is contained, got '{what}'"
            )
        return found

    @classmethod
    def _found(cls, what: str, given: dict[str, float]) -> Candidate:
        path = Path(what).expanduser()
        if path.suffix == ".c":
            library = str(compile_controller(path))
            return cls(what, Competitor(path.stem, registry.FILE, given, file=library), "c")
        if _is_algorithm(what):
            registry.check_parameters(what, given)
            return cls(what, Competitor(what, what, given))
        if given:
            raise ValueError(_takes_none(what, given))
        if path.suffix in STACKS:
            return cls(what, _stack(path))
        if path.suffix in _MODELS:
            return cls(what, Competitor(path.stem, "policy", policy=str(_imported(path))))
        if path.suffix == ".py" or what.partition(".py:")[1]:
            raise _python_file(what)
        if path.is_file() and path.name not in FILES:
            raise ValueError(
                f"'{what}' is a file of no kind that can be judged: a controller in C ends with .c, a model with "
                f"{', '.join(sorted(_MODELS))}, and a policy is a folder"
            )
        if path.exists():
            folder = find_policy(path.parent if path.name == "policy.npz" else path)
            return cls(what, Competitor(path.resolve().name, "policy", policy=str(folder.absolute())))
        if what.startswith(SCRIPTED):
            raise ValueError(f"the scripted agent {what!r} has no network: a score takes policies, not scripted agents")
        module, colon, name = what.partition(":")
        if colon and module and name:
            return cls(what, Competitor(name, "agent"), "python", what)
        if path.with_suffix(".py").is_file():
            raise _python_file(str(path.with_suffix(".py")))
        raise ValueError(
            f"'{what}' is no file, no folder and no module:callable, and no algorithm"
            f"{did_you_mean(what, registry.controllers())}; known algorithms: {', '.join(registry.controllers())}"
        )

    @property
    def words(self) -> list[str]:
        """The words of a command that name it and its parameters."""
        return [self.what, *parameter_words(self.competitor.parameters)]

    def in_job(self, seconds: float) -> dict[str, Any]:
        """Return the fields of a `ConfinedJob` that say what code it runs and what it may take.

        Python decides ten times per second and flow, which takes longer than to simulate: it may take 25 times
        `seconds`. What never returns is ended by the limit of a decision.
        """
        is_python = self.confinement == "python"
        return {
            "confinement": self.confinement,
            "library": self.competitor.file,
            "function": self.function,
            "seconds": 25 * seconds if is_python else seconds,
            "mebibytes": 4096 if is_python else MEBIBYTES,
        }

    def with_parameters(self, parameters: Mapping[str, float]) -> Candidate:
        """Return the candidate with other parameters.

        Raises:
            ValueError: it takes none, or the algorithm does not take these.
        """
        if parameters and not (self.confinement == "c" or _is_algorithm(self.what)):
            raise ValueError(_takes_none(self.what, parameters))
        registry.check_parameters(self.competitor.algorithm, parameters)
        return dataclasses.replace(self, competitor=dataclasses.replace(self.competitor, parameters=dict(parameters)))


def parameter_words(parameters: Mapping[str, float]) -> list[str]:
    """Return the words of a command that give parameters, to the last digit."""
    return [f"{name}={value!r}".removesuffix(".0") for name, value in parameters.items()]


def _is_algorithm(what: str) -> bool:
    return what in registry.controllers() or what in registry.LINUX_COMPARATORS


def _takes_none(what: str, given: Mapping[str, float]) -> str:
    return f"only algorithms and C files take parameters, got {', '.join(given)} for '{what}'"


def _python_file(what: str) -> Exception:
    """Return the error of a Python file, which is given as a module: `give mine:function`, with its functions."""
    path = Path(what.partition(".py")[0] + ".py").expanduser()
    if not path.is_file():
        return FileNotFoundError(f"there is no file '{path}'")
    folder = "" if path.absolute().is_relative_to(Path.cwd()) else f", in the folder '{path.parent}'"
    module = path.stem if folder else ".".join(path.absolute().relative_to(Path.cwd()).with_suffix("").parts)
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        body = []
    names = [one.name for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    having = f"; it has {', '.join(names)}" if names else ""
    return ValueError(f"'{path}' is a Python file: give {module}:function{folder}{having}")


def _stack(path: Path) -> Competitor:
    """Return the stack whose commands a file has: `server`, `client`, and optionally `name` and `data_from`."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file '{path}'")
    try:
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from error
    check_keys(str(path), plain, ("name", "server", "client", "data_from"))
    commands = {
        name: shlex.split(command) if isinstance(command := plain.get(name), str) else command
        for name in ("server", "client")
    }
    try:
        return Competitor.from_dict({"name": path.stem, **plain, **commands, "algorithm": registry.COMMAND})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _imported(path: Path) -> Path:
    """Return the folder of the agent that a model of another library becomes, with the default observation."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file '{path}'")
    digest = hashlib.sha256(path.read_bytes())
    for source in sorted(Path(importers.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    folder = user_cache("imported") / f"{bbrgym.__version__}-{digest.hexdigest()[:20]}"
    if not (folder / "agent.json").is_file():
        import_model(path, {"scenario": {"flows": [{"algorithm": "agent"}]}}).save(folder)
    return folder
