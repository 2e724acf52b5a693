"""What the tree costs to work in: `make house`, or `python tests/house.py [--write]`.

Four figures: the files that one more of something takes, what a person must read beside a file, which wings take the
commits, and the lines of text of each feature. With --write, the last one is written into CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import re
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CONTRIBUTING: Final = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- begin: make house -->\n", "<!-- end: make house -->\n"

ONE_MORE: Final = {
    "algorithm": ("ledbat", 1),
    "feature of observations": ("log_rate_decline", 1),
    "term of the reward": ("log_throughput", 1),
    "scenario field": ("loss_burst_ms", 7),
    "option of a learner": ("target_kl", 3),
    "study": ("pacing", 2),
}
"""{what: (an example of it, the most files that it may take)}, without its tests and what is generated of it."""

COMMITS: Final = 300
WINGS: Final = {
    "results": ("studies/*", "docs/results/*", "tests/studies/*"),
    "algorithms": ("baselines/*",),
    "engines and environments": ("envs/*", "ns3_scratch/*"),
    "agents": ("agents/*",),
    "benchmark": ("benchmark/*",),
    "command line": ("src/*",),
}

FEATURES: Final = {
    "results: studies and their pages": ("studies/*", "docs/results/*", "tests/studies/*", "tests/pages.py"),
    "engine on this machine's network, send and receive": (
        "envs/linux/*",
        "docs/linux.md",
        "docs/send.md",
        "docs/kernel.md",
        "docs/stacks.md",
        "agents/kernel/*",
        "tests/unit/test_linux*",
        "tests/unit/test_transfer*",
        "tests/unit/test_kernel*",
        "tests/udp_peer.py",
        "envs/flow_command.py",
        "conf/engine/linux*",
        "conf/experiment/linux*",
        "conf/experiment/kernel*",
        "tests/cc/bindings/*path*",
        "tests/unit/test_paths*",
        "tests/unit/test_wire*",
    ),
    "algorithms": (
        "baselines/*",
        "docs/algorithms/*",
        "tests/golden*",
        "tests/ack_path.py",
        "tests/bbr_rounds.py",
        *(f"tests/unit/test_{name}*" for name in ("bb", "copa", "cubic", "da_bbr", "ebcc", "f_bbr2", "ledbat")),
        *(f"tests/unit/test_{name}*" for name in ("newreno", "prague", "vegas", "vivace", "estimators")),
        "tests/contract/test_controllers.py",
    ),
    "ns-3": ("ns3_scratch/*", "envs/ns3/*", "envs/worker/*", "docs/native.md", "tests/unit/test_ns3_*"),
    "stock ns3-gym protocol": ("envs/ns3gym/*", "docs/ns3gym*", "tests/unit/test_ns3gym*"),
    "native engine, transport and model of a path": (
        "envs/native/*",
        "envs/model/*",
        "envs/transport/*",
        "envs/columns.def",
        "envs/scenario.def",
        "envs/fields.py",
        "tests/cc/*",
        "docs/scenarios.md",
        *(f"tests/unit/test_{name}*" for name in ("native", "queue", "link", "impair", "return", "topology", "trans")),
        *(f"tests/unit/test_{name}*" for name in ("ecn", "application", "workload")),
    ),
    "playground, lab and site": (
        "playground/*",
        "envs/wasm/*",
        "docs/site/*",
        "docs/playground.md",
        "src/bbrgym/lab.py",
        "tests/wasm_*",
        "tests/unit/test_playground*",
        "tests/unit/test_site*",
    ),
    "atlas and learning from its data": (
        "benchmark/atlas/*",
        "conf/atlas/*",
        "docs/atlas.md",
        "examples/offline/*",
        "src/bbrgym/atlas_command.py",
        "tests/unit/test_atlas*",
    ),
    "score, sandbox and C files": (
        "benchmark/score*",
        "benchmark/board*",
        "benchmark/sandbox.py",
        "benchmark/confined.py",
        "benchmark/decider.py",
        "benchmark/candidate.py",
        "benchmark/families.py",
        "examples/*",
        "docs/score.md",
        "src/bbrgym/confinement.py",
        "tests/hostile.py",
        "tests/bomb.py",
        "benchmark/quick_rfc9743.py",
        "benchmark/feedback.py",
        "baselines/cc/fault_report.c",
        "docs/discover.md",
        "tests/unit/test_discover*",
        "tests/unit/test_score*",
        "tests/unit/test_board*",
        "tests/unit/test_sandbox*",
        "tests/unit/test_controller_file*",
    ),
    "traces": (
        "benchmark/trace*",
        "benchmark/public_traces.txt",
        "envs/*_trace.py",
        "envs/mahimahi.py",
        "docs/traces.md",
        "envs/time_series.py",
        "tests/unit/test_traces*",
        "tests/unit/test_time_series*",
        "tests/unit/test_mahi*",
    ),
    "import and export of policies": (
        "agents/importers/*",
        "agents/export.py",
        "agents/c_header.py",
        "agents/policy.h.in",
        "docs/import.md",
        "tests/unit/test_export*",
        "tests/unit/test_importers*",
        "tests/unit/test_c_header*",
    ),
    "learners and training": ("agents/*", "docs/search.md", "docs/tracking.md", "conf/agent/*", "conf/train/*"),
    "benchmark": ("benchmark/*", "docs/benchmarks.md", "conf/benchmark/*", "conf/experiment/*"),
    "environments": ("envs/*", "docs/environments.md", "docs/infos.md", "docs/multi_agent.md", "tests/contract/*"),
    "command line, sweeps and executors": ("src/*", "conf/*", "docs/sweeps.md"),
    "notebooks": ("notebooks/*",),
    "other tests": ("tests/*",),
    "other pages": ("docs/*", "*.md"),
    "rest": ("*",),
}
"""Each file counts for the first feature that has it."""

GENERATED: Final = (
    "*.lock",
    "constraints.txt",
    "*/constraints.txt",
    "*_pb2.py",
    "*.pyi",
    "*/agent.json",
    "*/mlflow.json",
)


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.stderr:  # a search without a result has the exit status 1, too
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()


def cost_of_one_more() -> dict[str, list[str]]:
    """Return the files that an example of each kind takes: those in which its name stands."""
    return {what: _files_of(what, example) for what, (example, _) in ONE_MORE.items()}


def _files_of(what: str, example: str) -> list[str]:
    if what == "study":
        return git("ls-files", f"studies/{example}.*", f"studies/conf/experiment/{example}.yaml")
    if what == "algorithm":  # its own files are named after it
        return git("grep", "-lI", f'"{example}"', "--", "baselines", "envs", "ns3_scratch", "CMakeLists.txt")
    places = {"feature of observations": ["baselines"], "term of the reward": ["envs/model"]}
    found = git("grep", "-lIw", example, "--", *places.get(what, ["."]))
    return [file for file in found if not _is_test(file) and not _matches(file, GENERATED)]


def _is_test(file: str) -> bool:
    own = ("tests/house.py", "tests/training.py")
    # What uses it and works without it; the box of `bbrgym break` draws what its authors chose.
    is_used = file.startswith(("docs/results/", "conf/experiment/", "conf/scenario/families", "benchmark/breaking/"))
    return Path(file).name.startswith("test_") or file in own or is_used


def reading_radius() -> dict[str, int]:
    """Return the lines of the modules of this project that each Python file imports directly."""
    files = [file for file in git("ls-files", "*.py") if not file.startswith(("src/bbrgym/envs/", "tests/"))]
    modules: dict[str, str] = {}
    for file in files:
        path = Path(file).with_suffix("")
        parts = list(path.parts[1:] if path.parts[0] == "src" else path.parts)
        if parts[-1] == "__init__":
            parts.pop()
        root = [] if parts and parts[0] in ("bbrgym", "studies", "hydra_plugins") else ["bbrgym"]
        modules[".".join([*root, *parts])] = file
    lines = {file: (ROOT / file).read_text("utf-8").count("\n") for file in files}
    found = {}
    for file in files:
        imported = set()
        for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            imported |= {modules[name] for name in names if name in modules}
        found[file] = sum(lines[other] for other in imported - {file})
    return {file: radius for file, radius in found.items() if radius}


def commits_by_wing() -> Counter[str]:
    """Return how many of the last commits touch each wing."""
    counts: Counter[str] = Counter()
    touched: set[str] = set()
    for line in [*git("log", f"-{COMMITS}", "--no-merges", "--format=:%h", "--name-only"), ":"]:
        if line.startswith(":"):
            counts.update(touched)
            touched = set()
        else:
            touched |= {wing for wing, patterns in WINGS.items() if _matches(line, patterns)}
    return counts


def lines_by_feature() -> dict[str, int]:
    """Return the lines of text that people wrote, by feature."""
    counts = dict.fromkeys(FEATURES, 0)
    for line in git("grep", "-Ic", ""):
        file, _, count = line.rpartition(":")
        if not _matches(file, GENERATED):
            counts[next(name for name, patterns in FEATURES.items() if _matches(file, patterns))] += int(count)
    return counts


def _matches(file: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(file, pattern) for pattern in patterns)


def price_table() -> str:
    """Return the lines by feature, in hundreds, as a Markdown table, the largest first."""
    counts = lines_by_feature()
    rows = [f"| {name} | {round(counts[name], -2):,} |" for name in sorted(counts, key=lambda name: -counts[name])]
    return "\n".join(["| feature, with its tests and pages | lines of text |", "| --- | --: |", *rows]) + "\n"


def main() -> None:
    """Print the figures, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table of lines into CONTRIBUTING.md")
    if parser.parse_args().write:
        text = CONTRIBUTING.read_text("utf-8")
        pattern = re.compile(f"(?<={re.escape(BEGIN)}).*(?={re.escape(END)})", re.DOTALL)
        CONTRIBUTING.write_text(pattern.sub(lambda _: price_table(), text), "utf-8")
        return
    print("Files that one more takes, without its own tests, by an example:")
    for what, files in cost_of_one_more().items():
        print(f"  {what:<26} {len(files)} (most: {ONE_MORE[what][1]})  {ONE_MORE[what][0]}: {', '.join(files)}")
    radius = reading_radius()
    print("\nReading radius: lines of the project's modules that a Python file imports directly")
    print(f"  median {statistics.median(radius.values()):.0f}; largest: ", end="")
    print(", ".join(f"{file} {radius[file]}" for file in sorted(radius, key=lambda file: -radius[file])[:6]))
    print(f"\nThe last {COMMITS} commits by wing (one can touch several):")
    for wing, count in commits_by_wing().most_common():
        print(f"  {wing:<26} {count} ({count / COMMITS:.0%})")
    print(f"\n{price_table()}| sum | {sum(lines_by_feature().values()):,} |")


if __name__ == "__main__":
    main()
