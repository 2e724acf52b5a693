"""Hydra's overrides on a command line: how they are written, and what is wrong with one that does not fit."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, Quote, QuotedString, RangeSweep
from hydra.errors import HydraException, MissingConfigException
from omegaconf import Container, DictConfig, OmegaConf, read_write
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

from bbrgym.checks import check_name, close_name
from bbrgym.conf import choices, defaults, groups
from bbrgym.envs.distribution import KINDS
from bbrgym.envs.named import named_scenario, scenario_names
from bbrgym.envs.scenario import Flow


def command(words: str, overrides: Mapping[str, object]) -> str:
    """Return a command line that can be pasted into a shell: words as they are, and overrides of these texts by key."""
    return " ".join([words, *(shlex.quote(f"{key}={value_of(str(text))}") for key, text in overrides.items())])


def value_of(text: str) -> str:
    """Return a text as the value of an override that means this text."""
    try:
        override = OverridesParser.create().parse_override(f"key={text}")
        if not override.is_sweep_override() and override.value() == text and "$" not in text:
            return text
    except HydraException:
        pass
    # A backslash counts only before a quote or an interpolation.
    literal = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    return QuotedString(literal, Quote.double).with_quotes()


TEXTS: Final = ("name", "output_dir", "directory", "agent_path", "agent", "resume", "uri")
"""Settings that are texts, even if they look like a number."""


def read_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the values of overrides by their keys.

    Raises:
        ValueError: an override is a sweep.
        OmegaConfBaseException: there is no such variable.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    if sweep := next((one for one in parsed if one.is_sweep_override()), None):
        raise ValueError(f"{sweep.input_line}: give one value: a resumed training cannot be a sweep")
    config = OmegaConf.create({one.key_or_group: one.value() for one in parsed})
    read_environment(config)
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))


def store_papers(words: Iterable[str]) -> None:
    """Give Hydra the scenarios of papers that a command line names, which have no files of their own."""
    given = list(words)
    for name in scenario_names():
        group, _, paper = name.rpartition("/")
        if group and any(name in word for word in given):
            scenario = named_scenario(name)
            ConfigStore.instance().store(paper, scenario, group=f"scenario/{group}", package="scenario")


def read_environment(config: Container) -> None:
    """Replace values that are an environment variable, `${oc.env:NAME}`, by what its text means in an override.

    So `seed=${oc.env:SEED}` is a number, as `seed=7` is. The settings of `TEXTS` stay texts.

    Raises:
        OmegaConfBaseException: there is no such variable.
    """
    node: Any = config
    for key in range(len(node)) if OmegaConf.is_list(node) else list(node):
        child = node._get_node(key)
        if child._is_interpolation():
            if str(key).rpartition(".")[2] not in TEXTS and re.fullmatch(r"\$\{oc\.env:[^{}]*\}", str(child._value())):
                with read_write(node):
                    node[key] = _meaning(node[key])
        elif OmegaConf.is_config(child) and not child._is_none() and not child._is_missing():
            read_environment(child)


def _meaning(text: object) -> Any:
    """Return what a text means as the value of an override; the text if it is not one value."""
    try:
        override = OverridesParser.create().parse_override(f"key={text}")
    except HydraException:
        return text
    return text if override.is_sweep_override() else override.value()


def check_values(override: Override, options: Sequence[str]) -> None:
    """Check that an override which is a sweep has values.

    Args:
        override: the override.
        options: the choices of its group; none if its key is no group.

    Raises:
        ValueError: `agent=glob(x*) matches none of cma, distil, ppo, sac`.
    """
    sweep = override.value()
    if isinstance(sweep, Glob):
        if not options:
            raise ValueError(
                f"{override.input_line}: glob(…) chooses from a group, and {override.key_or_group} is none"
            )
        if not sweep.filter(list(options)):
            raise ValueError(f"{override.input_line} matches none of {', '.join(options)}")
    elif isinstance(sweep, RangeSweep) and not list(sweep.range()):
        raise ValueError(f"{override.input_line} has no values: its end is not part of it")


@contextmanager
def explaining(config_name: str, arguments: Sequence[str]) -> Iterator[None]:
    """Raise Hydra's errors about overrides in the block as errors that say what was meant.

    Args:
        config_name: of the configuration, `config` or `evaluate`.
        arguments: the command line.
    """
    try:
        yield
    except Exception as error:
        if (text := _explanation(error, config_name, arguments)) is None:
            raise
        raise ValueError(text) from error


def _explanation(error: Exception, config_name: str, arguments: Sequence[str]) -> str | None:
    """Return what is wrong with an override; None for an error about something else."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file is not None and error.options is not None:
        return _unknown_choice(error, arguments)
    if isinstance(error, TypeError) and (found := re.match(r"Index '(.*)' \(str\) is not an int", str(error))):
        argument = next((one for one in arguments if f".{found[1]}" in one.partition("=")[0]), "an override")
        return f"{argument}: entries of a list have the numbers 0, 1, …, got {found[1]!r}"
    if isinstance(error, TypeError) and str(error).startswith("list indices must be integers"):
        argument = next((one for one in arguments if re.match(r"~.*\.\d+(=|$)", one)), "an override")
        key = argument.removeprefix("~").partition("=")[0].rpartition(".")[0]
        return f"{argument}: an entry of a list cannot be deleted; to have others, give all of them: '{key}=[…]'"
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"'{mark.name}', line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    if isinstance(error, OmegaConfBaseException):
        return _interpolation(error, arguments)
    if missing := re.match(r"Could not delete from config\. '([^']+)' does not exist", str(error)):
        return f"~{missing[1]} deletes nothing: the configuration has no {missing[1]!r}"
    found = re.match(r"(?:Could not override|Error merging override) '?([^'=\s]+)", str(error))
    if not isinstance(error, HydraException) or not found:
        return None
    if found[1].startswith("~hydra"):
        return f"{found[1]}: a setting of Hydra cannot be deleted; give it a value: {found[1].removeprefix('~')}=…"
    if "Cannot merge" in str(error.__cause__):
        return _replacing(found[1], arguments)
    node = getattr(error.__cause__, "parent_node", None)
    if not isinstance(node, Container):
        return None
    return _unknown_key(found[1], cast(DictConfig, node._get_root()), config_name, arguments)


def _interpolation(error: OmegaConfBaseException, arguments: Sequence[str]) -> str | None:
    """Say what is wrong with a value that is computed from others."""
    text, _, place = str(error).partition("\n")
    where = re.match(r"\s*full_key: (\S+)", place)
    if where is None:
        return None
    if (found := re.match(r"Interpolation key '(.+)' not found", text)) is None:
        variable = re.search(r"Environment variable '(.*)' not found", text)
        key = f"oc.env:{variable[1]}" if variable else ""
        text = f"there is no environment variable {variable[1]!r}" if variable else text
    elif deletion := _deletion(found[1], arguments):
        return f"{deletion} deletes {found[1]}, which {where[1]} needs: leave {deletion} out"
    else:
        key, text = found[1], f"the configuration has no {found[1]!r}"
    argument = next((one for one in arguments if key and key in one.partition("=")[2]), where[1])
    return f"{argument}: {text}"


def _deletion(key: str, arguments: Sequence[str]) -> str | None:
    """Return the override that deletes a key, or a group that it is in."""
    for argument in arguments:
        deleted = argument.removeprefix("~").partition("=")[0]
        if argument.startswith("~") and f"{key}.".startswith(f"{deleted}."):
            return argument
    return None


def _unknown_choice(error: MissingConfigException, arguments: Sequence[str]) -> str | None:
    given = error.missing_cfg_file or ""
    keys = (argument.removeprefix("+").partition("=")[0] for argument in arguments)
    group = next((key for key in keys if given.startswith(f"{key}/")), given.rpartition("/")[0])
    known = dict.fromkeys([*(error.options or ()), *choices(group)])
    text = _unknown(group, given.removeprefix(f"{group}/"), known)
    place = re.match(r"In '([^']+)'", str(error))
    return f"in {place[1]}: {text}" if text and place and "/" in place[1] else text


def _unknown(what: str, name: str, known: Iterable[str]) -> str | None:
    """Return what `check_name` says; None if the name is known."""
    try:
        check_name(what, name, known)
    except ValueError as error:
        return str(error)
    return None


def _unknown_key(key: str, root: DictConfig, config_name: str, arguments: Sequence[str]) -> str:
    """Say what is wrong with the key of an override, in the configuration without it."""
    argument = _argument(key, arguments)
    if "/" in key:
        return _unknown("group", key, groups()) or f"group {key!r} is in no list of defaults: add it with +{key}=…"
    node: Any = root
    parts = key.split(".")
    for index, part in enumerate(parts):
        place = ".".join(parts[:index])
        if OmegaConf.is_list(node):
            if not part.isdecimal() or int(part) >= len(node):
                return (
                    f"{place} has the entries 0 to {len(node) - 1}, got {part!r}; to have more, give all of them: "
                    f"'{place}=[…]'"
                )
            node = node[int(part)]
            continue
        if not OmegaConf.is_dict(node):
            return f"{place} is a value ({node!r}) and has no {part!r}: give {place}=…"
        if part in node:
            node = node._get_node(part)
            node = node if OmegaConf.is_config(node) else node._value()
            continue
        if len(node) == 1 and next(iter(node)) in KINDS:
            advice = f"it a value: {place}=…"
            if parts[index - 1] == "flows":
                flows = shlex.join([f"~{place}", f"+{place}=[{{algorithm: agent, rtt_ms: 10}}]"])
                advice = f"all flows, {flows}, or choose a scenario with flows of its own, as scenario=duel"
            return f"{place} is drawn ({{{next(iter(node))}: …}}), so it has no {part!r}: give {advice}"
        if deletion := _deletion(".".join(parts[: index + 1]), arguments):
            return f"{argument}: {deletion} deletes {'.'.join(parts[: index + 1])}: leave {deletion} out"
        keys = [*node] if place else [*node, *defaults(config_name)]
        known = [str(name) for name in keys if str(name) != "hydra"]
        if parts[index - 2 : index - 1] == ["flows"] and part in (field.name for field in dataclasses.fields(Flow)):
            return f"{place} does not give {part} yet: add it with +{argument}"
        wanted = _similar(root, parts)
        if not wanted and not place and (close := close_name(part, known)):
            wanted = [close]
        has_all = _has_all_keys(place, root) or (not place and config_name == "evaluate")  # the rest is the agent's
        adding = "" if wanted or has_all else f"; to add a key that is not in its file: +{argument}"
        wanted = wanted or [".".join([*parts[:index], name]) for name in _named_in_short(part, known)]
        hint = f" (did you mean {' or '.join(wanted)}?)" if wanted else ""
        where = f" in {place}" if place else ""
        return f"unknown key {part!r}{where}{hint}; known: {', '.join(dict.fromkeys(known)) or 'none'}{adding}"
    return _replacing(key, arguments)


def _has_all_keys(place: str, root: DictConfig) -> bool:
    """Return whether a group's file has every key that the group takes: the arguments of SAC are more than those."""
    return place in ("train", "curriculum") or (place == "agent" and root.agent.get("algorithm") != "sac")


def _named_in_short(short: str, known: Sequence[str]) -> list[str]:
    """Return up to three names with these initials, as `learning_rate` has lr, or with this word in them."""
    found = []
    for name in known:
        words = name.casefold().split("_")
        if short.casefold() in ("".join(word[:1] for word in words), *words):
            found.append(name)
    return found[:3]


def _argument(key: str, arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if argument.startswith(f"{key}=")), f"{key}=…")


def _replacing(key: str, arguments: Sequence[str]) -> str:
    argument = _argument(key, arguments)
    return (
        f"{key} has another kind of value, with which Hydra merges {argument.partition('=')[2]}; to replace it: "
        f"{shlex.join([f'~{key}', f'+{argument}'])}"
    )


def _similar(root: DictConfig, parts: Sequence[str]) -> list[str]:
    """Return the key that is spelled almost so, part by part, or else up to three that end with the same name."""
    names = [path.split(".") for path in _paths(root)]
    close = [
        ".".join(found)
        for found in names
        if len(found) == len(parts) and all(map(close_name, parts, ([name] for name in found)))
    ]
    elsewhere = [".".join(found) for found in names if found[-1] == parts[-1]]
    closest = close_name(".".join(parts), close)
    return elsewhere[:3] if closest is None else [closest]


def _paths(node: Any, prefix: str = "") -> Iterator[str]:
    for name in range(len(node)) if OmegaConf.is_list(node) else node:
        if not prefix and name == "hydra":
            continue
        yield f"{prefix}{name}"
        value = node._get_node(name)
        if OmegaConf.is_config(value) and not value._is_none() and not value._is_interpolation():
            yield from _paths(value, f"{prefix}{name}.")
