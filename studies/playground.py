"""The playground (docs/playground.md): its data, and its size and speed beside native's.

`python -m studies.playground --build FOLDER` writes the page into the folder that has engine.wasm. Without --build it
measures: chunks of native and of Chromium take turns, so that a slow machine slows down both.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import re
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
from bbrgym.baselines.policy_file import LINEAR_REFERENCE, REFERENCE, policy_bytes, read_policy
from bbrgym.envs.observation import FEATURES
from bbrgym.files import replace_file
from bbrgym.lab import PAGE, make_server
from bbrgym.output import run_program
from studies import blocks, page

MARK: Final = "studies/playground.py"
SOURCE: Final = Path(__file__).parents[1] / "playground"
MODULE: Final = PAGE / "engine.wasm"
LICENCE: Final = "vendor/uPlot-LICENSE"
STYLE: Final = re.compile(r'<link rel="stylesheet" href="([^"]+)">')
SCRIPT: Final = re.compile(r'<script src="([^"]+)"([^>]*)></script>')
IMPORT: Final = re.compile(r"^(import \{[^}]*\}) from '\./([\w.]+)';$", re.MULTILINE)
EXPORT: Final = re.compile(r"^export (?=class|const|function|let)", re.MULTILINE)
ROUNDS: Final = 7
NODE: Final = """
import { readFileSync } from 'node:fs'
import { Engine } from './engine.js'
const engine = new Engine(new WebAssembly.Module(readFileSync(process.argv[1])))
const scenario = JSON.parse(process.argv[2])
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
    parser = blocks.parser(__doc__, MARK)
    parser.add_argument("--build", type=Path, metavar="FOLDER", help="write the page beside engine.wasm")
    options = parser.parse_args(argv)
    if options.build is not None:
        build(options.build)
        print(f"{options.build} is built; `bbrgym lab` opens it")
    else:
        blocks.publish(measure(), MARK, options.write)
    return 0


def build(folder: Path) -> None:
    """Write the page into the folder that has engine.wasm, as one file: browsers open it from a folder, too."""
    replace_file(folder / "index.html", lambda to: to.write_text(one_file(folder / "engine.wasm"), encoding="utf-8"))


def one_file(module: Path) -> str:
    """Return index.html with all that it names in it, and the module.

    A page that was opened from a folder (file://) may load neither modules nor other files.

    Raises:
        ValueError: a script has text that would end its element.
    """

    def script(found: re.Match[str]) -> str:
        name, attributes = found[1], found[2].removeprefix(" defer")
        if name == "data.json":
            engine = base64.b64encode(gzip.compress(module.read_bytes(), mtime=0)).decode()
            content = {**data(), "engine": engine, "worker": without_modules("worker.js")}
            text = json.dumps(content).replace("<", "\\u003c")
        else:
            text = with_modules(name)
        if name.startswith("vendor/"):
            text = f"/*\n{(SOURCE / LICENCE).read_text(encoding='utf-8')}*/\n{text}"
        if re.search("</script|<!--", text, re.IGNORECASE):
            raise ValueError(f"{name} must have neither '</script' nor '<!--'")
        return f"<script{attributes}>\n{text}\n</script>"

    page = (SOURCE / "index.html").read_text(encoding="utf-8")
    page = STYLE.sub(lambda found: f"<style>\n{(SOURCE / found[1]).read_text(encoding='utf-8')}</style>", page)
    return SCRIPT.sub(script, page)


def with_modules(name: str) -> str:
    """Return a script in which the modules that it imports, and those that they import, are data: URLs."""

    def module(found: re.Match[str]) -> str:
        content = base64.b64encode(with_modules(found[2]).encode()).decode()
        return f"{found[1]} from 'data:text/javascript;base64,{content}';"

    return IMPORT.sub(module, (SOURCE / name).read_text(encoding="utf-8"))


def without_modules(name: str) -> str:
    """Return a script with the code of its modules in front of it.

    Workers need it: Chromium starts none that is a module for a page that was opened from a folder.
    """
    text = (SOURCE / name).read_text(encoding="utf-8")
    modules = [EXPORT.sub("", without_modules(found[2])) for found in IMPORT.finditer(text)]
    return "".join(modules) + IMPORT.sub("", text)


def data() -> dict[str, Any]:
    """Return what the page needs: experiments, algorithms with a line about each, and the bytes of policies."""
    from omegaconf import OmegaConf

    presets = OmegaConf.to_container(OmegaConf.load(SOURCE / "presets.yaml"))
    assert isinstance(presets, list)
    descriptions = {name: text for name, text in registry.controllers().items() if name != "agent"}
    descriptions["linear"] = "a linear policy of sixteen weights, which can be moved"
    features = {
        name: read_policy(path).spec["observation"]["features"]
        for name, path in (("policy", REFERENCE), ("linear", LINEAR_REFERENCE))
    }
    return {
        "presets": [preset | {"scenario": Scenario.from_dict(preset["scenario"]).to_dict()} for preset in presets],
        "algorithms": list(descriptions.items()),
        "preferring": [name for name, seen in features.items() if any("preference" in feature for feature in seen)],
        "policies": {
            name: base64.b64encode(policy_bytes(path)).decode()
            for name, path in (("reference", None), ("linear", LINEAR_REFERENCE))
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

    module, whole = MODULE.read_bytes(), (PAGE / "index.html").read_bytes()
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
        [
            "page, with the module in it",
            f"{len(whole) / 1e6:.2f} MB, {len(brotli.compress(whole)) / 1e3:.0f} kB by brotli",
        ],
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
    command = [node, "--no-warnings", "--experimental-default-type=module", "--input-type=module", "-e", NODE]
    ran = subprocess.run([*command, str(MODULE), plain], cwd=SOURCE, check=True, capture_output=True, text=True)
    return [float(ran.stdout)]


def _native_speed(scenario: Scenario) -> float:
    with contextlib.closing(make_engine("native")) as engine:
        begin = time.perf_counter()
        rows = engine.reset(scenario, 1)
        while not rows.is_over:
            rows = engine.step(100.0)
        return scenario.duration_s / (time.perf_counter() - begin)


if __name__ == "__main__":
    sys.exit(run_program("playground", main))
