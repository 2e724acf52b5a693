"""`bbrgym atlas`: offline data sets that are made again from their manifests (docs/atlas.md)."""

from __future__ import annotations

import re
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.progress import track

from bbrgym.benchmark.atlas.make import make_shards
from bbrgym.benchmark.atlas.manifest import (
    MOST_SHARDS,
    Manifest,
    atlas_code,
    check_record,
    manifest_names,
    read_manifest,
    record,
)
from bbrgym.benchmark.atlas.minari_sets import minari_name, require_minari, write_minari
from bbrgym.benchmark.atlas.shard_files import ShardFacts
from bbrgym.benchmark.atlas.transitions import FOLDER
from bbrgym.benchmark.atlas.verify import GOOD, Check, check_again, check_files
from bbrgym.benchmark.code import made_with
from bbrgym.checks import check_name, read_groups
from bbrgym.executors import ExecutorConfig, TaskExecutor, make_executor
from bbrgym.extras import require
from bbrgym.files import check_folder
from bbrgym.interruption import SAME_COMMAND, resumed_by
from bbrgym.layout import columns, name_table, wrap
from bbrgym.options import OptionParser
from bbrgym.output import is_quiet, tell
from bbrgym.terminal import make_console

ACTIONS: Final = ("make", "verify", "list")


def atlas_parser() -> OptionParser:
    """Return the parser of `bbrgym atlas`."""
    parser = OptionParser("atlas")
    parser.add_argument(
        "action",
        metavar="ACTION",
        help="make writes the shards that are not there yet; verify compares their content with the manifest's hashes; "
        "list names the data sets, or the levels of one",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a data set of `bbrgym atlas list`, or a manifest.json")
    parser.add_argument(
        "settings", nargs="*", metavar="NAME=VALUE", help="executor=ray, executor.workers=2: where shards are made"
    )
    parser.add_argument("--levels", metavar="A,B", help="levels, or yardsticks; all by default")
    parser.add_argument("--shards", metavar="N-M", help="numbers, such as 0-9 or 0,3,7; the manifest's by default")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help=f"where files are; {FOLDER}/NAME by default")
    parser.add_argument("--minari", action="store_true", help="make: write a data set of Minari per level, too")
    parser.add_argument(
        "--record", action="store_true", help="make: write the hashes of all shards from 0 on into the manifest"
    )
    parser.add_argument("--again", action="store_true", help="verify: make the shards instead of reading files")
    return parser


def run_atlas(arguments: list[str]) -> int:
    """Run the command.

    Returns:
        0; 1 if a shard is missing, damaged or different.
    """
    options = atlas_parser().parse_intermixed_args(arguments)
    check_name("action", options.action, ACTIONS)
    for option, action in (("minari", "make"), ("record", "make"), ("again", "verify")):
        if getattr(options, option) and options.action != action:
            raise ValueError(f"--{option} is for `bbrgym atlas {action}`")
    if options.action == "list":
        return _list(options)
    if options.name is None:
        raise ValueError(f"give a data set: bbrgym atlas {options.action} {manifest_names()[0]}")
    require("the atlas", "pyarrow")
    manifest = read_manifest(options.name)
    kinds = _read_kinds(options.levels, manifest)
    shards = range(manifest.shards) if options.shards is None else read_numbers(options.shards)
    folder = options.folder or FOLDER / manifest.name
    groups, rest = read_groups(options.settings, ("executor",))
    if rest:
        raise ValueError(f"settings are executor=KIND and executor.NAME=VALUE, got {rest[0]!r}")
    config = ExecutorConfig.of(groups["executor"])
    with ExitStack() as stack:
        if options.action == "make":
            return _make(options, manifest, kinds, shards, folder, _start(stack, config))
        executor = _start(stack, config) if options.again else None
        return _verify(manifest, kinds, shards, folder, executor)


def read_numbers(text: str) -> list[int]:
    """Return the numbers of shards that a text means, rising: `0-9`, `3`, `0,4-6`.

    Raises:
        ValueError: it means none.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,7})\s*(?:-\s*(\d{1,7})\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < MOST_SHARDS:
            raise ValueError(f"--shards must be numbers below {MOST_SHARDS}, such as 0-9 or 0,3,7, got {text!r}")
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def _make(
    options: Namespace,
    manifest: Manifest,
    kinds: Sequence[str],
    shards: Sequence[int],
    folder: Path,
    executor: TaskExecutor,
) -> int:
    check_folder(folder, "choose another folder with --folder")
    if options.minari:
        require_minari()
    recorded_with = {"code": atlas_code(), "software": made_with()}
    if options.record:
        check_record(manifest, kinds, shards, recorded_with)
    began = time.monotonic()
    with resumed_by(SAME_COMMAND):
        facts = make_shards(manifest, kinds, shards, folder, executor, None if is_quiet() else make_console())
        seconds = time.monotonic() - began
        print("\n".join(_summary(facts, kinds)))
        sets = []
        for level in (kind for kind in kinds if options.minari and kind in manifest.levels):
            write_minari(manifest, level, shards, folder)
            sets.append(minari_name(manifest, level))
    if options.record:
        hashes = {kind: [one.hash for one in facts if one.kind == kind] for kind in kinds}
        path = record(options.name, hashes, recorded_with)
        print(f"Hashes: {path}")
    if sets:
        print(f"Minari: {', '.join(sets)}")
    decisions = sum(one.steps for one in facts)
    tell(
        f"{len(facts)} shards, {decisions:,} decisions, {seconds:.0f} s: {folder}",
        {
            "folder": str(folder),
            "shards": len(facts),
            "decisions": decisions,
            "seconds": seconds,
            "minari": sets,
            "hashes": {kind: {one.shard: one.hash for one in facts if one.kind == kind} for kind in kinds},
        },
    )
    return 0


def _summary(facts: Sequence[ShardFacts], kinds: Sequence[str]) -> list[str]:
    rows = [["level", "shards", "flows", "decisions", "reward"]]
    for kind in kinds:
        own = [one for one in facts if one.kind == kind]
        steps = sum(one.steps for one in own)
        mean = f"{sum((one.reward or 0.0) * one.steps for one in own) / steps:.3f}" if steps else ""
        flows = sum(one.flows for one in own) if steps else 0
        rows.append([kind, str(len(own)), f"{flows:,}" if flows else "", f"{steps:,}" if steps else "", mean])
    return columns(rows)


def _verify(
    manifest: Manifest, kinds: Sequence[str], shards: Sequence[int], folder: Path, executor: TaskExecutor | None
) -> int:
    if executor is None:
        found = check_files(manifest, kinds, shards, folder)
    else:
        found = check_again(manifest, kinds, shards, executor)
    checks: list[Check] = []
    console = make_console()
    total, is_hidden = len(kinds) * len(shards), is_quiet() or not console.is_terminal
    for check in track(found, "shards", total=total, console=console, transient=True, disable=is_hidden):
        checks.append(check)
        if check.verdict != "equal":
            print(check.line, flush=True)
    counts = {verdict: sum(one.verdict == verdict for one in checks) for verdict in dict.fromkeys(_verdicts(checks))}
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    tell(f"{len(checks)} shards: {text}", {"counts": counts, "shards": [vars(check) for check in checks]})
    return 0 if all(check.verdict in GOOD for check in checks) else 1


def _verdicts(checks: Sequence[Check]) -> list[str]:
    return ["equal", *(check.verdict for check in checks)]


def _list(options: Namespace) -> int:
    if options.name is None:
        manifests = [read_manifest(name) for name in manifest_names()]
        rows = [(one.name, f"{one.description}: {', '.join(one.levels)}") for one in manifests]
        usage = "bbrgym atlas make NAME makes one; bbrgym atlas list NAME says what its levels are."
        text = "\n".join([*name_table(rows, indent=""), "", *wrap(usage)])
        tell(text, {"data_sets": [_facts(one) for one in manifests]})
        return 0
    manifest = read_manifest(options.name)
    rows = [(level, ", ".join(one.text for one in acting)) for level, acting in manifest.levels.items()]
    rows += [("yardsticks", ", ".join(manifest.yardsticks))] if manifest.yardsticks else []
    size = f"{manifest.shards} shards of {manifest.episodes} episodes per level, seed {manifest.seed}"
    tell("\n".join([*wrap(f"{manifest.name}: {manifest.description}; {size}"), *name_table(rows)]), _facts(manifest))
    return 0


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "description": manifest.description,
        "levels": {level: [one.text for one in acting] for level, acting in manifest.levels.items()},
        "yardsticks": [*manifest.yardsticks],
        "shards": manifest.shards,
        "episodes": manifest.episodes,
        "recorded": {kind: len(hashes) for kind, hashes in manifest.hashes.items()},
    }


def _read_kinds(text: str | None, manifest: Manifest) -> list[str]:
    kinds = [*manifest.kinds] if text is None else [*dict.fromkeys(text.split(","))]
    for kind in kinds:
        check_name("level", kind, manifest.kinds)
    return kinds


def _start(stack: ExitStack, config: ExecutorConfig) -> TaskExecutor:
    executor = make_executor(config)
    stack.callback(executor.shutdown, cancel_futures=True)
    return executor
