"""What works where Linux's own interfaces and ns-3 are missing: everything but the engines that need them."""

import subprocess
import sys
import textwrap
from pathlib import Path

HIDE = """
    import os, platform, sys
    sys.modules |= {"bbrgym._linux": None, "bbrgym._ns3": None}
    del os.sched_getaffinity
    platform.system = lambda: "Elsewhere"
"""


def run_elsewhere(code: str, folder: Path) -> str:
    """Run code in a process that lacks what only Linux has, and return what it prints."""
    script = textwrap.dedent(HIDE) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, check=True, capture_output=True, text=True, timeout=300
    ).stdout


def test_environments_and_benchmarks_in_native(tmp_path: Path) -> None:
    printed = run_elsewhere(
        """
        import gymnasium, bbrgym
        from bbrgym.cli import main
        env = gymnasium.make("bbrgym/Single-v1")
        env.reset(seed=1)
        print(env.step([0.0, 0.0])[1])
        scenarios = "+benchmark.scenarios={link: {duration_s: 1, flows: [{}, {}]}}"
        print(main(["benchmark", "benchmark.name=here", "~benchmark.scenarios", scenarios, "tracking=none",
                    "benchmark.competitors=[bbr]", "benchmark.seeds=[1]"]))
        """,
        tmp_path,
    )
    assert printed.endswith("0\n")
    assert (tmp_path / "runs" / "benchmark" / "here" / "report.html").is_file()


def test_what_needs_linux_says_so(tmp_path: Path) -> None:
    printed = run_elsewhere(
        """
        from bbrgym import make_engine
        from bbrgym.envs.engine import EngineUnavailableError
        from bbrgym.benchmark.sandbox import Sandbox
        from bbrgym.cli import main
        for engine in ("linux", "ns3"):
            try:
                make_engine(engine)
            except EngineUnavailableError as error:
                print(error)
        try:
            Sandbox()
        except ValueError as error:
            print(error)
        print(main(["receive"]))
        """,
        tmp_path,
    )
    assert [name in printed for name in ("bbrgym._linux", "ns-3", "got Elsewhere")] == [True, True, True]
    assert printed.endswith("1\n")
