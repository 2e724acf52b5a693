"""What Markdown, docstrings and comments name exists: paths, anchors, commands, ids, settings, tests, modules."""

import ast
import functools
import importlib
import io
import itertools
import json
import re
import shutil
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from pages import ROOT, commands

from bbrgym import Flow, Scenario, atlas_command, break_command, certify_command, cli, lab, simulate, simulation
from bbrgym.agents import importers, mlflow_store
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.benchmark import board, candidate, papers, results, score, score_linux, trace_sets
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.decider import Decider
from bbrgym.cli import COMMANDS
from bbrgym.envs.linux import commands as linux_commands
from bbrgym.envs.ns3gym import server

TOPS = [
    path for path in ROOT.iterdir() if path.name[0] != "." and path.name not in ("build", "dist", "runs", "multirun")
]
FILES = {
    str(file.relative_to(ROOT)): file
    for top in TOPS
    for file in ([top] if top.is_file() else top.rglob("*"))
    if file.is_file() and "__pycache__" not in file.parts
}
SOURCES = "".join(path.read_text() for file, path in FILES.items() if file.endswith((".py", ".cc", ".h")))
PROSE = [
    file
    for file in FILES
    if file.endswith(
        (".md", ".ipynb", ".py", ".cc", ".h", ".def", ".yaml", ".toml", ".proto", "Makefile", "CMakeLists.txt")
    )
    and file != "CHANGELOG.md"  # which says what was
]
CONFIGURATIONS = (ROOT / "conf", ROOT / "studies" / "conf")

FOREIGN = {
    "codel_impl.h",
    "markoviancc.cc",
    "ppo.yml",
    "ppo_continuous_action.py",
    "prague_sender.h",
    "rtt-window.cc",
    "tcp-socket-base.cc",
    "src/internet/model/tcp-bbr-acd.cc",
    "hydra/launcher=basic",
    "hydra/launcher=submitit_local",
    "hydra/sweeper=basic",
}
"""What other software has, and its users."""


@functools.cache
def text_of(file: str) -> str:
    """Return the prose of a file: all of a page, else docstrings and comments."""
    text = FILES[file].read_text()
    if file.endswith(".md"):
        return re.sub(r"^```(?:python|cpp).*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    if file.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    if not file.endswith(".py"):
        return "\n".join(re.findall(r"(?://|#).*", text))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    strings = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr))
    docstrings = (node.value for node in strings if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return "\n".join([*map(str, docstrings), *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def is_path(path: str, text: str) -> bool:
    """Return whether files or a folder have this path, or the page says that the reader makes it."""
    is_made = re.search(rf"^`{re.escape(path)}`$|bbrgym import \S+ {re.escape(path)}\b", text, re.MULTILINE)
    return is_made is not None or path in FOREIGN or any(ROOT.glob(path)) or any(ROOT.glob(f"conf/{path}"))


def is_file_name(name: str, text: str) -> bool:
    """Return whether a file has this name, or the code writes or reads one."""
    known = FOREIGN | {Path(file).name for file in FILES}
    return name in known or f'"{name}"' in SOURCES or is_path(name, text) or f"/{name}" in SOURCES


def has_anchor(target: str, _: str) -> bool:
    path, _, anchor = target.partition("#")
    headings = re.findall(r"^#+ (.*)", (ROOT / path).read_text(), re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def is_name(dotted: str, _: str) -> bool:
    """Return whether a module, or what it has, is called so."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if part in getattr(found, "__annotations__", {}):
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def is_choice(override: str, _: str) -> bool:
    group, _, choices = override.partition("=")
    if override in FOREIGN:
        return True
    folders = [folder / group for folder in CONFIGURATIONS if (folder / group).is_dir()]
    return not folders or all(any((f / f"{one}.yaml").is_file() for f in folders) for one in choices.split(","))


@functools.cache
def settings() -> list[Any]:
    executors = [OmegaConf.load(path) for path in ROOT.glob("conf/benchmark/executor/*.yaml")]
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        return [compose("config"), *(OmegaConf.create({"benchmark": {"executor": keys}}) for keys in executors)]


def is_setting(path: str, _: str) -> bool:
    parent, _, key = path.rpartition(".")
    return any(key in (OmegaConf.select(config, parent) or {}) for config in settings())


def is_target(target: str, _: str) -> bool:
    return re.search(rf"^(?:[\w-]+ )*{target}(?: [\w-]+)*:", FILES["Makefile"].read_text(), re.MULTILINE) is not None


def is_module(module: str, _: str) -> bool:
    return importlib.util.find_spec(module) is not None


FOLDERS = "|".join(top.name for top in TOPS if top.is_dir())
EXTENSIONS = "cc|csv|def|h|json|md|parquet|png|py|toml|yaml|yml"
CHECKS: dict[str, tuple[str, Callable[[str, str], bool]]] = {
    "path": (rf"(?<![\w/.$}}<-])((?:{FOLDERS})/(?:[\w./*-]|{{[\w.,]+}})*(?:[\w*]|{{[\w.,]+}}))(?![\w=<{{…])", is_path),
    "file": (rf"`([\w-]+\.(?:{EXTENSIONS}|{{[\w,]+}}))`", is_file_name),
    "anchor": (r"\b(docs/[\w/-]+\.md#[\w-]+)", has_anchor),
    "name": (r"\b((?:bbrgym|studies)(?:\.\w+)+)\b(?![/:]\w|\.\w)", is_name),
    "id": (r"\b(bbrgym/\w+-v\d+)", lambda id, _: id in gymnasium.registry),
    "choice": (r"(?<![\w.])((?:\w+/)?[a-z]+=[a-z\d/,_-]*[a-z\d])(?=[\s`)\\;:,]|$)", is_choice),
    "setting": (r"[\s`]((?:benchmark(?!\.scenarios\.)|tracking|train)(?:\.\w+)+)=", is_setting),
    "target": (r"`make ([a-z][\w-]*)", is_target),
    "module": (r"-m ((?:bbrgym|studies)(?:\.\w+)*)", is_module),
    "command": (r"(?:^    |`)bbrgym ([a-z\d]+)", lambda command, _: command in COMMANDS),
    "test": (r"(?:`|::)(test_\w+)`", lambda test, _: f"def {test}(" in SOURCES or is_file_name(f"{test}.py", "")),
}


def variants(name: str) -> list[str]:
    """Return the names that braces stand for."""
    if not (braces := re.search(r"{([^{}]*)}", name)):
        return [name]
    return [name.replace(braces[0], part) for part in braces[1].split(",")]


@pytest.mark.parametrize("kind", CHECKS)
def test_what_prose_names_exists(kind: str) -> None:
    pattern, exists = CHECKS[kind]
    found = [(file, name) for file in PROSE for name in re.findall(pattern, text_of(file), re.MULTILINE)]
    assert len(found) > 2
    missing = [(file, one) for file, name in found for one in variants(name) if not exists(one, text_of(file))]
    assert missing == []


class Accepted(BaseException):
    """A command line is right: its work would begin."""


def accept(*_: object, **__: object) -> NoReturn:
    raise Accepted


def accept_candidate(candidate: Candidate, *_: object, **__: object) -> None:
    """Look whether code that is somebody else's can be run, which only its confined process would say."""
    if candidate.function is not None:
        Decider(candidate.function)
    elif candidate.confinement == "c":
        competitor = candidate.competitor
        flow = Flow("file", file=competitor.file, parameters=competitor.parameters)
        simulate(Scenario(flows=(flow,), duration_s=0.1))
    raise Accepted


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader of the pages has in the current folder; commands end where their work begins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder in (
        "runs/train/NAME",
        "runs/train/NAME/best",
        "runs/train/2026-01-31_12-00-00_ppo-1",
        "runs/offline/iql",
    ):
        shutil.copytree(REFERENCE, folder, dirs_exist_ok=True)
    for folder in ("examples", "agents"):
        Path(folder).symlink_to(ROOT / folder)
    shutil.copy(ROOT / "examples" / "aimd.c", "mine.c")
    Path("phone.csv").write_text("time_s,throughput (kbit/s)\n0,9000\n")
    shutil.copy(ROOT / "conf" / "atlas" / "families.json", "own.json")
    for name in ("stack.yaml", "mine.yaml"):
        Path(name).write_text("server: server\nclient: client\n")
    for folder in ("package", "runs/benchmark/rtt_fairness"):
        Path(folder).mkdir(parents=True)
    Path("runs/benchmark/rtt_fairness/benchmark.json").touch()
    Path("package/module.py").write_text("def decide(row):\n    return 1.2, 1.0\n")
    monkeypatch.setattr(candidate, "_imported", lambda path: REFERENCE)
    monkeypatch.setattr(score, "score_candidate", accept_candidate)
    for module, name in (
        (atlas_command, "make_shards"),
        (atlas_command, "check_files"),
        (atlas_command, "check_again"),
        (board, "check_entries"),
        (break_command, "find"),
        (certify_command, "certify"),
        (importers, "import_model"),
        (lab, "make_server"),
        (mlflow_store, "run_ui"),
        (papers, "check_is_available"),
        (results, "load_benchmark"),
        (score_linux, "score_on_linux"),
        (server, "serve_episode"),
        (simulation, "simulate"),
        (trace_sets, "write_synthetic"),
        (trace_sets, "read_folder"),
        (linux_commands, "send"),
        (linux_commands, "receive"),
    ):
        monkeypatch.setattr(module, name, accept)


@pytest.mark.usefixtures("reader")
def test_commands_of_the_pages_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    found = [(page, words) for page, words in commands() if not COMMANDS[words[0]].groups or words[0] == "import"]
    assert {words[0] for _, words in found} >= {"score", "send", "receive", "export", "import", "traces", "report"}
    refused = []
    for page, words in found:
        given = [str(REFERENCE) if "$(" in word else re.sub(r"^RUN$", "runs/train/NAME", word) for word in words]
        try:
            status = cli.main(given)
        except Accepted:
            status = 0
        except SystemExit as left:  # of argparse
            status = left.code
        printed = capsys.readouterr().err
        if status != 0:
            refused.append((page, words, printed))
    assert refused == []


def test_experiments_and_options_of_the_pages_are_those_of_their_commands() -> None:
    for page, (command, *words) in commands():
        cli._check_experiments(command, words)
        if COMMANDS[command].groups and command != "import":
            rest = [word for word in words if "=" not in word]
            folders = {after for word, after in itertools.pairwise(words) if word == "--config-dir"}
            assert set(rest) <= {"-m", "--help", "--config-dir", *folders}, (page, words)


LINK = re.compile(r"\]\(([^)\s:]+)\)")


@pytest.mark.parametrize("file", [file for file in PROSE if file.endswith((".md", ".ipynb"))])
def test_links_lead_somewhere(file: str) -> None:
    for link in LINK.findall(text_of(file)):
        path, _, anchor = link.partition("#")
        target = ((ROOT / file).parent / path if path else ROOT / file).resolve()
        assert target.exists(), link
        # Settings of the playground are no anchor: tests/unit/test_playground_scripts.py opens them.
        assert not anchor or anchor.startswith("%7B") or has_anchor(f"{target.relative_to(ROOT)}#{anchor}", ""), link
