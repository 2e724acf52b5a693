"""An entry of the scoreboard as a file. Anybody can have written it, so that everything in it is checked."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import Network, StoredPolicy, decisions_of
from bbrgym.checks import check_integer, check_keys, check_name, is_number
from bbrgym.files import DAMAGES, damage, json_text

Kind = Literal["algorithm", "C file", "policy"]

FORMAT: Final = 1
KINDS: Final = ("algorithm", "C file", "policy")
MOST_BYTES: Final = 2**20
"""Of an entry. One of a C file has 30 kB, most of it scores; the largest policy that fits has 128,000 weights."""
MOST_LINES: Final = 60
MOST_COLUMNS: Final = 132
"""Of a C file: as much as a person reads at once, in lines that a wide terminal shows whole."""
MOST_WEIGHTS: Final = 2**17
MOST_LETTERS: Final = 300
"""Of a text of the author."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_HASH: Final = re.compile(r"[0-9a-f]{16}|[0-9a-f]{64}")
_RELEASE: Final = re.compile(r"\d+\.\d+\.\d+[a-z0-9.+-]{0,20}")
_DIRECTIVE: Final = re.compile(
    r"""[ \t]*(?:(?:define|undef|if|ifdef|ifndef|elif|else|endif)\b"""
    r"""|include[ \t]*(?:"bbrgym_controller\.h"|<(?:float|limits|math|stdbool|stddef|stdint|stdlib|string)\.h>)"""
    r"""[ \t]*(?:/\*.*)?$)"""
)
"""What may follow a `#` in a C file."""
_HIDES_A_DIRECTIVE: Final = re.compile(
    r"\?\?[=/(]|%:|\\[ \t]*$|\b_Pragma\b|\basm\b|\b__asm(?:__)?\b|\b__attribute(?:__)?\b|(?:\[|<:)\s*(?:\[|<:)",
    re.MULTILINE,
)
"""What could be a `#`, hide one, or read another file in a way of its own: the name of a section can, in assembler."""
TRAINING: Final = ("algorithm", "steps", "earlier_steps", "seed", "reward", "imported", "sha256", "licence")
"""What an entry keeps of a policy's training."""


@dataclass(frozen=True)
class Made:
    """How an entry was made, in its author's words: plain texts, which no machine has checked.

    Attributes:
        author: who hands it in.
        licence: of the content, as an SPDX identifier.
        command: what made the content.
        versions: of the software that made the scores.
    """

    author: str
    licence: str
    command: str
    versions: str

    def __post_init__(self) -> None:
        for field in fields(self):
            check_text(field.name, getattr(self, field.name))


@dataclass(frozen=True)
class Entry:
    """An entry.

    Attributes:
        release: of bbrgym, which decides the scenarios together with the code.
        code: the hash of what decides the scores.
        seed: of the scenarios.
        track: where it competes.
        kind: what the content is.
        content: an algorithm's name, the text of a C file, or a policy's agent and weights.
        parameters: of an algorithm or a C file.
        content_hash: of kind, content and parameters.
        made: how it was made.
        scores: what was measured.
    """

    release: str
    code: str
    seed: int
    track: str
    kind: Kind
    content: Mapping[str, Any]
    parameters: Mapping[str, float]
    content_hash: str
    made: Made
    scores: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_pattern("release", self.release, _RELEASE)
        check_pattern("code", self.code, _HASH)
        check_integer("seed", self.seed, at_least=0, below=2**31)
        check_text("track", self.track)
        check_name("kind", self.kind, KINDS)
        check_keys("scores", self.scores, ("score", "means", "harm", "runs"))
        check_keys("parameters", self.parameters, self.parameters)
        if bad := [name for name, value in self.parameters.items() if not is_number(value)]:
            raise ValueError(f"the parameter {_short(bad[0])} must be a finite number")
        _CHECKS[self.kind](self)
        if self.content_hash != (found := hash_of(self.kind, self.content, self.parameters)):
            raise ValueError(f"content_hash must be {found}, which is that of the content, got {self.content_hash!r}")

    @property
    def decisions(self) -> int | None:
        """How many decisions a policy has learned from, as `bbrgym train` recorded it; None where nothing did."""
        if self.kind != "policy":
            return None
        return decisions_of(self.content["agent"]["training"])

    def policy(self) -> StoredPolicy:
        """Return the policy of an entry of that kind.

        Raises:
            ValueError: its numbers do not fit together.
        """
        agent = self.content["agent"]
        weights = {name: _array(name, one) for name, one in self.content["weights"].items()}
        network = Network.from_arrays(weights, agent["activation"], agent["output"])
        policy = StoredPolicy(agent["spec"], network, agent["training"])
        policy.to_bytes()  # fails if observation or action are none
        return policy

    def to_json(self) -> str:
        """Return the text of its file."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)} | {"made": vars(self.made)}
        return json_text({"format": FORMAT, **plain}) + "\n"


def content_of_policy(policy: StoredPolicy) -> dict[str, Any]:
    """Return what an entry keeps of a policy: what decides its gains, and facts of its training."""
    arrays = policy.network.to_arrays()
    return {
        "agent": {
            "activation": policy.network.activation,
            "output": policy.network.output,
            "spec": {group: policy.spec[group] for group in ("observation", "action", "env")},
            "training": {name: policy.training[name] for name in TRAINING if name in policy.training},
        },
        "weights": {
            name: {
                "shape": list(array.shape),
                "float32": base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode(),
            }
            for name, array in arrays.items()
        },
    }


def hash_of(kind: str, content: Mapping[str, Any], parameters: Mapping[str, float]) -> str:
    """Return the SHA-256 of what is scored."""
    return hashlib.sha256(canonical([kind, content, parameters]).encode()).hexdigest()


def canonical(plain: Any) -> str:
    """Return plain types as JSON in one form, so that equal texts are equal to the last bit."""
    return json.dumps(json.loads(json_text(plain)), sort_keys=True)


def read_entry(path: Path) -> Entry:
    """Return the entry in a file.

    Raises:
        ValueError: one sentence that says what is wrong with it.
        OSError: the file cannot be read.
    """
    check_entry_name(path)
    return parse_entry(_read(path))


def check_entry_name(path: Path) -> None:
    """Check that a file can be an entry: its stem is the name on the board.

    Raises:
        ValueError: naming it.
    """
    if path.suffix != ".json":
        raise ValueError(f"an entry must end with .json, got {_short(path.name)}")
    check_pattern("the name of an entry", path.stem, _NAME)


def parse_entry(content: bytes) -> Entry:
    """Return the entry of a file's content.

    Raises:
        ValueError: one sentence that says what is wrong with it.
    """
    try:
        plain = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
        names = [field.name for field in fields(Entry)]
        check_keys("the entry", plain, ["format", *names])
        if lacking := [name for name in ["format", *names] if name not in plain]:
            raise ValueError(f"it has no {lacking[0]!r}")
        if plain.pop("format") != FORMAT:
            raise ValueError(f"format must be {FORMAT}")
        made = [field.name for field in fields(Made)]
        check_keys("made", plain["made"], made)
        if lacking := [name for name in made if name not in plain["made"]]:
            raise ValueError(f"made has no {lacking[0]!r}")
        for name in ("content", "parameters", "scores"):
            check_keys(name, plain[name], plain[name] if isinstance(plain[name], dict) else ())
        return Entry(**{**plain, "made": Made(**plain["made"])})
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    except DAMAGES as error:
        raise ValueError(one_line(damage(error))) from None


def one_line(text: str) -> str:
    """Return a text of unknown origin as one short line of printable letters."""
    line = "".join(letter if letter.isprintable() else " " for letter in text.partition("\n")[0])
    return line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}…"


def check_text(name: str, text: object) -> None:
    """Check that a text is one line of printable letters.

    Raises:
        ValueError: naming it.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_LETTERS or not text.isprintable():
        raise ValueError(
            f"{name} must be a text of one line, 1 to {MOST_LETTERS} printable letters, got {_short(text)}"
        )


def check_pattern(name: str, text: object, pattern: re.Pattern[str]) -> None:
    """Check that a text is what a pattern describes; raise a ValueError that names it if not."""
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(f"{name} must match `{pattern.pattern}`, got {_short(text)}")


def _read(path: Path) -> bytes:
    """Return the content of a small file; a pipe or a device would have no end."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise ValueError("it is no file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it must have at most {MOST_BYTES:,} bytes, and has {state.st_size:,}")
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {_short(next(name for name in names if names.count(name) > 1))} is there twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"numbers must be finite, got {name}")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"numbers must be finite, got {_short(text)}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return one_line(text if len(text) <= 60 else f"{text[:60]}…")


def _check_algorithm(entry: Entry) -> None:
    _check_content(entry, algorithm=str)
    registry.check_parameters(entry.content["algorithm"], entry.parameters)


def _check_c_file(entry: Entry) -> None:
    _check_content(entry, text=str)
    check_c_text(entry.content["text"])


def check_c_text(text: str) -> None:
    """Check the rules of C files that a compiler does not check.

    Raises:
        ValueError: it is too long, or would read other files than the header while it is compiled.
    """
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise ValueError(f"a C file must have at most {MOST_LINES} lines, and this one has {len(lines)}")
    for number, line in enumerate(lines, start=1):
        if len(line) > MOST_COLUMNS:
            raise ValueError(f"a line of a C file must have at most {MOST_COLUMNS} letters: line {number} {len(line)}")
    if not all(letter.isprintable() or letter in "\n\t" for letter in text):
        raise ValueError("a C file must be of printable letters")
    if found := _HIDES_A_DIRECTIVE.search(text):
        raise ValueError(f"a C file must have no {_short(found[0])}: it could read other files")
    for number, line in enumerate(lines, start=1):
        for rest in line.split("#")[1:]:
            if not _DIRECTIVE.match(rest):
                raise ValueError(
                    "a # of a C file must begin a definition, a condition, or an include of bbrgym_controller.h or of "
                    f"a header of C, got {_short('#' + rest)} in line {number}"
                )


def _check_policy(entry: Entry) -> None:
    _check_content(entry, agent=dict, weights=dict)
    if entry.parameters:
        raise ValueError("a policy takes no parameters")
    agent = entry.content["agent"]
    check_keys("agent", agent, ("activation", "output", "spec", "training"))
    check_keys("spec", agent.get("spec"), ("observation", "action", "env"))
    check_keys("training", agent.get("training"), TRAINING)
    for name, at_least in (("steps", 1), ("earlier_steps", 0)):
        if agent["training"].get(name) is not None:
            check_integer(f"{name} of the training", agent["training"][name], at_least=at_least, below=2**53)
    for name in ("algorithm", "imported", "sha256", "licence"):
        if agent["training"].get(name) is not None:
            check_text(name, agent["training"][name])
    entry.policy()


def _check_content(entry: Entry, **types: type) -> None:
    check_keys("content", entry.content, types)
    for name, kind in types.items():
        if not isinstance(entry.content.get(name), kind):
            raise ValueError(f"the content of a {entry.kind} must have {name!r}, of type {kind.__name__}")


_CHECKS: Final = {"algorithm": _check_algorithm, "C file": _check_c_file, "policy": _check_policy}


def _array(name: str, plain: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the array of an entry's weights."""
    check_keys(f"weights[{_short(name)}]", plain, ("shape", "float32"))
    shape = plain["shape"]
    if not isinstance(shape, list) or not 1 <= len(shape) <= 2:
        raise ValueError(f"the shape of {_short(name)} must have one or two numbers, got {_short(shape)}")
    for size in shape:
        check_integer(f"the shape of {_short(name)}", size, at_least=1, at_most=MOST_WEIGHTS)
    try:
        content = base64.b64decode(plain["float32"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError(f"{_short(name)} is not base64") from None
    if len(content) != struct.calcsize("<f") * math.prod(shape):
        raise ValueError(f"{_short(name)} has {len(content)} bytes, which does not fit its shape {shape}")
    return np.frombuffer(content, "<f4").reshape(shape).astype(np.float32)
