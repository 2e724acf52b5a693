"""The playground (docs/playground.md): its data, and its size and speed beside native's.

`python -m studies.playground --build FOLDER` copies the page into the folder that has engine.wasm. Without --build it
measures: chunks of native and of Chromium take turns, so that a slow machine slows down both.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bbrgym import Flow, Scenario, make_engine
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import REFERENCE, policy_bytes, read_policy
from bbrgym.envs.observation import FEATURES
from bbrgym.lab import PAGE, make_server
from studies import page

MARK: Final = "studies/playground.py"
SOURCE: Final = Path(__file__).parents[1] / "playground"
LINEAR: Final = REFERENCE.parent / "linear"
ROUNDS: Final = 7
NODE: Final = """
import { readFileSync } from 'node:fs'
import { Engine } from './engine.js'
const engine = new Engine(new WebAssembly.Module(readFileSync('engine.wasm')))
const scenario = JSON.parse(process.argv[1])
const run = () => {
  const begin = performance.now(), simulation = engine.start(scenario, 1)
  while (!simulation.step(100)) {}
  simulation.end()
  return scenario.duration_s / (performance.now() - begin) * 1e3
}
run()  // compiles
console.log(run())
"""
"""Prints the simulated seconds per second of a scenario."""
SPEED_SCENARIO: Final = Scenario(
    rate_mbps=100.0, buffer_bdp=1.0, duration_s=30.0, flows=(Flow("bbr", rtt_ms=10.0), Flow("bbr", rtt_ms=50.0))
)


def main(argv: Sequence[str] | None = None) -> int:
    """Build the page, or measure it; with --write, write the table into the page of the documentation."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--build", type=Path, metavar="FOLDER", help="copy the page and its data")
    options = parser.parse_args(argv)
    if options.build is not None:
        build(options.build)
        print(f"{options.build} is built; `bbrgym lab` opens it")
    else:
        page.publish(measure(), MARK, options.write)
    return 0


def build(folder: Path) -> None:
    """Write everything but the module into a folder."""
    shutil.copytree(SOURCE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.yaml"))
    (folder / "data.json").write_text(json.dumps(data()), encoding="utf-8")


def data() -> dict[str, Any]:
    """Return what the page needs: experiments, algorithms with a line about each, and the bytes of policies."""
    from omegaconf import OmegaConf

    presets = OmegaConf.to_container(OmegaConf.load(SOURCE / "presets.yaml"))
    assert isinstance(presets, list)
    descriptions = {name: text for name, text in registry.controllers().items() if name != "agent"}
    descriptions["linear"] = "a linear policy of sixteen weights, which can be moved"
    features = {
        name: read_policy(path).spec["observation"]["features"]
        for name, path in (("policy", REFERENCE), ("linear", LINEAR))
    }
    return {
        "presets": [preset | {"scenario": Scenario.from_dict(preset["scenario"]).to_dict()} for preset in presets],
        "algorithms": list(descriptions.items()),
        "preferring": [name for name, seen in features.items() if any("preference" in feature for feature in seen)],
        "policies": {
            name: base64.b64encode(policy_bytes(path)).decode()
            for name, path in (("reference", None), ("linear", LINEAR))
        },
        "linear": {"inputs": [(name, FEATURES[name].meaning) for name in features["linear"]]},
    }


@contextmanager
def serving(folder: Path = PAGE, root: Path | None = None) -> Iterator[str]:
    """Serve the page in a thread; yield its address."""
    with make_server(folder, root) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """Start headless Chromium; yield selenium's driver.

    Raises:
        ModuleNotFoundError: selenium is not installed.
        selenium.common.WebDriverException: there is no Chromium or no chromedriver.
    """
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *arguments):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(300)
    try:
        yield driver
    finally:
        driver.quit()


def measure() -> str:
    """Return a table of sizes, times and speeds."""
    import brotli

    module = (PAGE / "engine.wasm").read_bytes()
    whole = b"".join(path.read_bytes() for path in sorted(PAGE.rglob("*")) if path.is_file())
    native: list[float] = []
    browser: list[float] = []
    node: list[float] = []
    plain = json.dumps(SPEED_SCENARIO.to_dict())
    with serving() as address, chromium() as driver:
        driver.get(address)
        first_ms = driver.execute_async_script(
            """
            const [done] = arguments;
            const look = () => {
              const [mark] = performance.getEntriesByName('first picture');
              if (mark) done(mark.startTime); else setTimeout(look, 20);
            };
            look();
            """
        )
        driver.execute_script("document.getElementById('run').click()")  # no other work in the worker
        for _ in range(ROUNDS):
            native.append(_native_speed(SPEED_SCENARIO))
            node += _node_speed(plain)
            browser += driver.execute_async_script(
                "playground.call('measure', JSON.parse(arguments[0]), 1).then(arguments[1])", plain
            )
        version = driver.capabilities["browserVersion"]
    ratios = [of_browser / of_native for of_browser, of_native in zip(browser, native, strict=True)]
    rows = [
        ["module", f"{len(module) / 1e6:.2f} MB, {len(brotli.compress(module)) / 1e3:.0f} kB by brotli"],
        ["all files", f"{len(whole) / 1e6:.2f} MB, {len(brotli.compress(whole)) / 1e3:.0f} kB by brotli"],
        [f"first picture in Chromium {version}", f"{first_ms / 1e3:.2f} s"],
        ["Chromium, simulated seconds per second", f"{statistics.median(browser):.0f}"],
        ["Node", f"{statistics.median(node):.0f}" if node else "not installed"],
        ["native, simulated seconds per second", f"{statistics.median(native):.0f}"],
        ["Chromium / native", f"{statistics.median(ratios):.2f}"],
    ]
    return page.table(["two BBR flows, 100 Mbit/s, 10 and 50 ms, 1 BDP", f"median of {ROUNDS}"], rows, [1])


def _node_speed(plain: str) -> list[float]:
    """Return the speed in Node.js, or nothing where it is not installed."""
    node = shutil.which("node")
    if node is None:
        return []
    command = [node, "--no-warnings", "--experimental-default-type=module", "--input-type=module", "-e", NODE, plain]
    ran = subprocess.run(command, cwd=PAGE, check=True, capture_output=True, text=True)
    return [float(ran.stdout)]


def _native_speed(scenario: Scenario) -> float:
    with contextlib.closing(make_engine("native")) as engine:
        begin = time.perf_counter()
        rows = engine.reset(scenario, 1)
        while not rows.is_over:
            rows = engine.step(100.0)
        return scenario.duration_s / (time.perf_counter() - begin)


if __name__ == "__main__":
    sys.exit(main())
