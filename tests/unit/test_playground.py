"""The WebAssembly module beside native, and the page in Chromium. Both are built by `make playground`."""

import contextlib
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.testing as npt
import pandas as pd
import pytest
from random_scenarios import random_scenario

from bbrgym import Flow, Scenario, cli, controllers, simulate
from bbrgym.baselines.policy_file import LINEAR_REFERENCE, policy_bytes
from bbrgym.benchmark.atlas.make import ShardJob, facts_of, make_shard
from bbrgym.benchmark.atlas.manifest import manifest_names, read_manifest
from bbrgym.envs import rate_trace
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.sharing import Sharing
from bbrgym.envs.trace_file import load_trace, save_trace
from bbrgym.lab import PAGE, saved_runs
from studies import playground

MODULE = PAGE / "engine.wasm"
SITE_PAGE = PAGE.parent / "docs" / "site" / "playground" / "index.html"
DATA = playground.data()
PRESETS = {preset["name"]: preset for preset in DATA["presets"]}

pytestmark = pytest.mark.skipif(not MODULE.is_file(), reason="build/playground is missing: `make playground` builds it")


@pytest.fixture(scope="module")
def engine() -> Any:
    pytest.importorskip("wasmtime", reason="wasmtime is missing: `make playground` installs it")
    from wasm_engine import WasmEngine

    return WasmEngine(MODULE, {"reference": policy_bytes(None), "linear": policy_bytes(LINEAR_REFERENCE)})


def plain_of(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as the page gives it: policies have names."""
    plain = scenario.to_dict()
    for flow in plain["flows"]:
        if flow["algorithm"] == "policy":
            flow["policy"] = "linear" if flow.get("policy") else "reference"
    return plain


def assert_equal(engine: Any, scenario: Scenario, seed: int) -> None:
    trace = simulate(scenario, engine="native", seed=seed)
    times, flows, link = zip(*engine.run(plain_of(scenario), seed), strict=True)
    npt.assert_array_equal(times, trace.time_s)
    npt.assert_array_equal(np.stack(flows), trace.flows)
    npt.assert_array_equal(np.stack(link), trace.link)


def test_the_module_loads_quickly_from_anywhere() -> None:
    brotli = pytest.importorskip("brotli", reason="brotli is missing: `make playground` installs it")
    module = MODULE.read_bytes()
    assert len(module) < 500_000
    assert len(brotli.compress(module)) < 150_000


def test_columns_and_algorithms_are_those_of_python(engine: Any) -> None:
    assert engine.names() == [list(FLOW_COLUMNS), list(LINK_COLUMNS), list(controllers())]


@pytest.mark.parametrize("algorithm", controllers())
def test_rows_of_each_algorithm_equal_native(engine: Any, algorithm: str) -> None:
    path = {"jitter_ms": 1.0, "ecn": "l4s" if algorithm == "prague" else None}
    scenario = Scenario(
        rate_mbps=20,
        buffer_bdp=1,
        loss=0.001,
        duration_s=12,
        flows=(Flow(algorithm, rtt_ms=30), Flow(algorithm, rtt_ms=60, start_s=1, **path)),
    )
    assert_equal(engine, scenario, seed=42)


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_random_scenarios_equal_native(engine: Any, seed: int) -> None:
    assert_equal(engine, random_scenario(random.Random(seed)), seed)


@pytest.mark.parametrize("name", PRESETS)
def test_rows_of_presets_equal_native(engine: Any, name: str) -> None:
    assert_equal(engine, native_of(PRESETS[name]["scenario"] | {"duration_s": 10}), seed=1)


class WasmBatch:
    """What the atlas needs of `bbrgym.envs.engine_batch.EngineBatch`, in the module."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def begin_resets(
        self, indices: Sequence[int], scenarios: Sequence[Scenario], seeds: Sequence[int], steps_ms: Sequence[float]
    ) -> None:
        runs = zip(scenarios, seeds, steps_ms, strict=True)
        self._runs = [list(self._engine.run(plain_of(scenario), *rest)) for scenario, *rest in runs]
        self.is_over = np.zeros(len(indices), bool)
        most = max(len(scenario.flows) for scenario in scenarios)
        self.flows = np.zeros((len(indices), most, len(FLOW_COLUMNS)))
        self.link = np.zeros((len(indices), len(LINK_COLUMNS)))

    def begin_steps(self, indices: Sequence[int]) -> None:
        for index in indices:
            _, flows, self.link[index] = self._runs[index].pop(0)
            self.flows[index, : len(flows)] = flows
            self.is_over[index] = not self._runs[index]

    def finish(self) -> dict[int, Exception]:
        return {}

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", manifest_names())
def test_a_shard_of_the_atlas_has_its_recorded_hash(name: str, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = read_manifest(name)
    job = ShardJob(manifest.recipe("mixed"), 0)  # of algorithms, which decide in the engine
    monkeypatch.setattr(EpisodeSpec, "make_engine_batch", lambda spec, count: WasmBatch(engine))
    assert facts_of(make_shard(job), job).hash == manifest.recorded("mixed", 0)


def native_of(plain: dict[str, Any]) -> Scenario:
    """Return the scenario of the page's names of policies."""
    paths = {"linear": str(LINEAR_REFERENCE), "reference": None, None: None}
    flows = [flow | {"policy": paths[flow.get("policy")]} for flow in plain["flows"]]
    return Scenario.from_dict(plain | {"flows": flows})


def test_a_rate_changed_while_it_runs_equals_a_schedule(engine: Any) -> None:
    base = Scenario(rate_mbps=20, duration_s=10, flows=(Flow("bbr"), Flow("cubic", start_s=1))).to_dict()
    changed = base | {"rate_schedule": [[3.000001, 5.0]]}
    live = list(engine.run(base, 1, changes={30: changed}))
    for one, other in zip(live, engine.run(changed, 1), strict=True):
        npt.assert_array_equal(one[1], other[1])
        npt.assert_array_equal(one[2], other[2])


def test_jitter_and_loss_take_effect_while_it_runs(engine: Any) -> None:
    base = Scenario(rate_mbps=20, duration_s=10, flows=(Flow("bbr"), Flow("bbr"))).to_dict()
    changed = base | {"loss": 0.05, "flows": [base["flows"][0] | {"jitter_ms": 40.0}, base["flows"][1]]}
    rows = list(engine.run(base, 1, changes={50: changed}))
    lost = np.array([link[LINK_COLUMNS.index("random_losses")] for _, _, link in rows])
    jitter = np.array([flows[:, FLOW_COLUMNS.index("rtt_jitter_ms")] for _, flows, _ in rows])
    assert lost[:50].sum() == 0 < lost[50:].sum()
    assert np.nanmean(jitter[60:, 0]) > 5 * np.nanmean(jitter[60:, 1])


@pytest.mark.parametrize(
    ("damage", "message"),
    [({"rate": 1}, "rate"), ({"queue": "red"}, "known: droptail"), ({"flows": []}, "at least one flow")],
)
def test_what_is_no_scenario_traps(engine: Any, damage: dict[str, Any], message: str, capfd: Any) -> None:
    import wasmtime
    from wasm_engine import WasmEngine

    with pytest.raises(wasmtime.Trap):
        list(WasmEngine(MODULE, {}).run(Scenario().to_dict() | damage, 1))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    selenium = pytest.importorskip("selenium", reason="selenium is missing: `make playground` installs it")
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(playground.chromium())
        except selenium.common.exceptions.WebDriverException as error:
            pytest.skip(f"no Chromium with chromedriver: {error.msg}")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with playground.serving() as at:
        yield at


def wait_until(driver: Any, condition: Callable[[], Any], what: str = "") -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, 120, 0.05).until(lambda _: condition(), what)


class Page:
    """The page in a browser."""

    def __init__(self, driver: Any, address: str, query: str = "", **settings: Any) -> None:
        self.driver = driver
        driver.get("about:blank")
        driver.get_log("browser")
        driver.get(f"{address}{query}#{quote(json.dumps(settings))}" if settings else address + query)
        self.wait("run")

    def state(self) -> Any:
        return self.driver.execute_script("return window.playground?.state()")

    def wait(self, what: str, is_reached: Callable[[Any], bool] = bool) -> Any:
        """Return the state once it is reached."""

        def reached_state() -> Any:
            state = self.state()
            return state and is_reached(state) and state

        return wait_until(self.driver, reached_state, what)

    def finish(self) -> Any:
        self.choose("speed", "1e9")
        return self.wait("the end", lambda state: state["isOver"])

    def find(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def choose(self, name: str, value: str) -> None:
        self.driver.execute_script(f"document.getElementById('{name}').value = '{value}'")

    def assert_quiet(self) -> None:
        assert self.driver.get_log("browser") == []
        assert self.find("#error").text == ""


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_runs_with_the_scores_of_python(browser: Any, address: str, name: str) -> None:
    page = Page(browser, address)
    next(b for b in browser.find_elements("css selector", "nav button") if b.text == PRESETS[name]["title"]).click()
    page.wait(name, lambda state: state["settings"]["preset"] == name)
    state = page.finish()
    for plain, score in zip(state["scenarios"], state["scores"], strict=True):
        sharing = Sharing.of_trace(simulate(native_of(plain), seed=1), 0.25)
        assert score["fairPower"] == pytest.approx(sharing.fair_power, rel=1e-6)
        assert score["jain"] == pytest.approx(sharing.jain, rel=1e-6)
        assert score["utilisation"] == pytest.approx(sharing.utilisation, rel=1e-6)
        assert score["delay"] == pytest.approx(sharing.delay, rel=1e-6)
    page.assert_quiet()


def test_a_slider_dragged_while_it_runs_is_in_the_downloaded_scenario(
    browser: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from selenium.webdriver import ActionChains

    page = Page(browser, address, preset="short-rtt")
    page.wait("two seconds", lambda state: state["time_s"] > 2)
    slider = page.find("#live input")
    ActionChains(browser).drag_and_drop_by_offset(slider, -60, 0).perform()
    state = page.finish()
    (*_, (time_s, rate)) = state["scenarios"][0]["rate_schedule"]
    assert time_s > 2
    assert rate < 20
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.find("#yaml").click()
    page.find("#csv").click()
    rows = pd.read_csv(downloaded(tmp_path / "playground.csv"))
    experiment = tmp_path / "experiment" / "playground.yaml"
    experiment.parent.mkdir()
    downloaded(tmp_path / "playground.yaml").rename(experiment)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["benchmark", "--config-dir", str(tmp_path), "experiment=playground", "--quiet"]) == 0
    for trace in map(load_trace, saved_runs(tmp_path)):
        of_run = rows[rows["run"] == {"bbr": "a", "policy": "b"}[trace.scenario.flows[0].algorithm]]
        npt.assert_array_equal(of_run[list(FLOW_COLUMNS)], trace.flows.reshape(-1, len(FLOW_COLUMNS)))
    page.assert_quiet()


def downloaded(path: Path) -> Path:
    end = time.monotonic() + 60
    while not path.is_file():
        assert time.monotonic() < end, f"{path} was not downloaded"
        time.sleep(0.05)
    return path


def test_the_keyboard_is_enough(browser: Any, address: str) -> None:
    from selenium.webdriver.common.keys import Keys

    page = Page(browser, address)

    def press(*keys: str) -> Any:
        for key in keys:
            browser.switch_to.active_element.send_keys(key)
        return browser.switch_to.active_element

    def tab_to(text: str) -> None:
        for _ in range(80):
            element = press(Keys.TAB)
            label = browser.execute_script("return arguments[0].labels?.[0]?.textContent ?? ''", element)
            if text in (element.text, label):
                return
        raise AssertionError(f"Tab does not reach {text!r}")

    page.choose("speed", "1")  # so that it is still running at the end
    browser.execute_script("document.querySelector('nav button').focus()")
    tab_to(PRESETS["f-bbr2"]["title"])
    press(Keys.ENTER)
    page.wait("the preset", lambda state: state["settings"]["preset"] == "f-bbr2")
    tab_to("Random loss")
    press(*[Keys.ARROW_RIGHT] * 5)
    page.wait("the loss", lambda state: state["scenarios"][0]["loss"] == pytest.approx(0.005))
    tab_to("In run A")
    press("c")  # a list takes the first entry that begins so
    page.wait("cubic", lambda state: state["scenarios"][0]["flows"][0]["algorithm"] == "cubic")
    tab_to("Pause")
    press(Keys.SPACE)
    assert page.find("#run").text == "Run"
    page.assert_quiet()


def test_a_link_restores_the_settings(browser: Any, address: str) -> None:
    page = Page(browser, address, preset="steer")
    page.driver.execute_script("document.getElementById('compare').click()")
    slider = page.find("#sliders input")
    slider.send_keys("\ue014\ue014")  # two times arrow right
    page.find("#add").click()
    page.wait("four flows", lambda state: len(state["scenarios"][0]["flows"]) == 4)
    first = page.finish()
    link = browser.current_url
    browser.get("about:blank")
    browser.get(link)
    again = page.finish()
    assert again["settings"] == first["settings"]
    assert again["settings"]["weights"] is not None
    assert again["scores"] == first["scores"]


def test_a_weight_that_is_moved_changes_the_run(browser: Any, address: str) -> None:
    page = Page(browser, address, preset="steer")
    learned = page.finish()["scores"][0]["fairPower"]
    page.find("#sliders input").send_keys("\ue010")  # End: the largest value
    moved = page.wait("a run", lambda state: state["isOver"] and state["settings"]["weights"])
    assert moved["scores"][0]["fairPower"] < learned - 0.01


@pytest.mark.parametrize("link", ["%7B", "null", '{"flows": 5}', '{"rate_mbps": 0, "flows": [{"rtt_ms": -1}]}'])
def test_a_bad_link_opens_the_first_experiment_and_says_why(browser: Any, address: str, link: str) -> None:
    page = Page(browser, address)
    browser.get("about:blank")
    browser.get(f"{address}#{quote(link, safe='%')}")
    state = page.wait("a run", lambda state: state["time_s"] > 0)
    assert state["settings"]["preset"] == DATA["presets"][0]["name"]
    assert "not valid" in page.find("#notice").text
    page.assert_quiet()
    page.find("#add").click()
    page.wait("three flows", lambda state: len(state["scenarios"][0]["flows"]) == 3)
    assert page.find("#notice").text == ""
    browser.execute_script("location.hash = '#null'")  # as by the address bar, while the page is open
    page.wait("two flows", lambda state: len(state["scenarios"][0]["flows"]) == 2)
    assert "not valid" in page.find("#notice").text
    page.assert_quiet()


def test_an_error_of_the_engine_is_shown_and_can_be_mended(browser: Any, address: str) -> None:
    page = Page(browser, address)
    browser.execute_script(
        """
        const queue = document.querySelector('#link select');
        queue.append(new Option('RED', 'red'));
        queue.value = 'red';
        queue.dispatchEvent(new Event('change'));
        """
    )
    wait_until(browser, lambda: "known: droptail" in page.find("#error").text)
    page.find("nav button").click()
    page.wait("a run", lambda state: state["time_s"] > 0)
    assert page.find("#error").text == ""


def test_nothing_is_wider_than_a_phone(browser: Any, address: str) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page = Page(browser, address, preset="steer")
        page.finish()
        assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_lab_shows_saved_runs_beside_the_same_simulation(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "evaluate" / "one" / "traces"
    folder.mkdir(parents=True)
    trace = simulate(Scenario(rate_mbps=20, duration_s=8, flows=(Flow("bbr"), Flow("policy", start_s=1))), seed=3)
    save_trace(trace, folder / "seed_3.parquet")
    with playground.serving(root=tmp_path) as address:
        page = Page(browser, address)
        assert browser.current_url.endswith("?lab")
        wait_until(browser, lambda: len(browser.find_elements("css selector", "#saved option")) == 2)
        save_trace(simulate(Scenario(rate_mbps=9, duration_s=2), seed=4), folder / "seed_4.parquet")
        browser.find_elements("css selector", "#saved option")[1].click()
        state = page.wait("both", lambda state: len(state["rows"]) == 2 and state["settings"]["seed"] == 3)
        assert state["scores"][0] == state["scores"][1]
        assert state["scores"][0]["fairPower"] == pytest.approx(Sharing.of_trace(trace, 0.25).fair_power)
        # The controls have the run's values, and a run that they start is the same.
        values = [element.get_attribute("value") for element in browser.find_elements("css selector", "#link input")]
        assert values[1:] == ["8", "3"]
        assert page.find("#live output").text == "20 Mbit/s"
        assert [one.get_attribute("value") for one in browser.find_elements("css selector", "#flows select")] == [
            "bbr",
            "policy",
        ]
        page.find("#restart").click()
        page.wait("one run", lambda state: len(state["rows"]) == 1)
        assert "Run A" not in page.find("#story").text
        again = page.finish()
        assert again["scores"] == state["scores"][:1]
        assert page.find("#runs").get_attribute("value") == ""
        page.assert_quiet()


RATES = "time_s,throughput (kbit/s)\n0,4000\n1.5,12500\n3,2500\n"
DROP = """
const given = new DataTransfer();
given.items.add(new File([arguments[1]], arguments[0]));
for (const type of ['dragenter', 'dragover', 'drop']) {
  const event = new DragEvent(type, { dataTransfer: given, bubbles: true, cancelable: true });
  document.getElementById('charts').dispatchEvent(event);
}
"""


def test_a_file_of_rates_that_is_dropped_or_chosen_becomes_the_links(
    browser: Any, address: str, tmp_path: Path
) -> None:
    (tmp_path / "my.csv").write_text(RATES)
    (tmp_path / "my.trace").write_text("3\n17\n40\n")
    page = Page(browser, address, preset="short-rtt", duration_s=6)
    browser.execute_script(DROP, "my.csv", RATES)
    expected = [list(pair) for pair in rate_trace.from_config({"file": str(tmp_path / "my.csv")}, 6)]
    state = page.wait("the rates", lambda state: state["scenarios"][0]["rate_schedule"] == expected)
    assert "my.csv" in page.find("#story").text
    link = browser.current_url
    assert page.finish()["scores"][0]["utilisation"] > 0.5
    page.find("#file").send_keys(str(tmp_path / "my.trace"))
    expected = [list(pair) for pair in rate_trace.from_config({"file": str(tmp_path / "my.trace")}, 6)]
    page.wait("the other rates", lambda state: state["scenarios"][0]["rate_schedule"] == expected)
    # A longer run has more of the file.
    duration = page.find("#link input[type=number]")
    browser.execute_script("arguments[0].value = 9; arguments[0].dispatchEvent(new Event('change'))", duration)
    longer = [list(pair) for pair in rate_trace.from_config({"file": str(tmp_path / "my.trace")}, 9)]
    page.wait("more rates", lambda state: state["scenarios"][0]["rate_schedule"] == longer)
    page.assert_quiet()
    # A link has the rates, too.
    browser.get("about:blank")
    browser.get(link)
    assert page.wait("the link")["scenarios"][0]["rate_schedule"] == state["scenarios"][0]["rate_schedule"]


@pytest.mark.parametrize(
    ("content", "message"),
    [("time_s,rate\n0,1\n", "my.csv:1: the unit of column 2"), ("PAR1", "bbrgym lab"), ("5\n4\n", "my.csv:2: times")],
)
def test_a_dropped_file_that_cannot_be_used_is_named_and_changes_nothing(
    browser: Any, address: str, content: str, message: str
) -> None:
    page = Page(browser, address, preset="short-rtt")
    before = page.state()["settings"]
    browser.execute_script(DROP, "my.csv", content)
    wait_until(browser, lambda: message in page.find("#error").text)
    assert page.state()["settings"] == before


def test_the_lab_shows_a_saved_trace_that_is_dropped(browser: Any, tmp_path: Path) -> None:
    trace = simulate(Scenario(rate_mbps=20, duration_s=6, flows=(Flow("bbr"), Flow("cubic"))), seed=3)
    save_trace(trace, tmp_path / "mine.parquet")
    with playground.serving(root=tmp_path) as address:
        page = Page(browser, address)
        page.find("#file").send_keys(str(tmp_path / "mine.parquet"))
        state = page.wait("both", lambda state: len(state["rows"]) == 2 and state["settings"]["seed"] == 3)
        assert "mine.parquet" in page.find("#story").text
        assert state["scores"][0] == state["scores"][1]
        page.assert_quiet()


def test_the_page_of_the_site_has_links_to_its_pages(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "playground"
    folder.mkdir()
    text = (PAGE / "index.html").read_text("utf-8")
    # As docs/site/build.py does.
    (folder / "index.html").write_text(text.replace('name="docs" content=""', 'name="docs" content="../"'), "utf-8")
    page = Page(browser, (folder / "index.html").as_uri(), preset="short-rtt")
    assert page.find("#docs").get_attribute("href") == (tmp_path / "index.html").as_uri()
    algorithm = page.state()["settings"]["flows"][0]["algorithm"]
    about = browser.find_element("link text", algorithm)
    assert about.get_attribute("href") == (tmp_path / "algorithms" / f"{algorithm}.html").as_uri()
    page = Page(browser, (PAGE / "index.html").as_uri(), preset="short-rtt")
    assert not page.find("#docs").is_displayed()
    assert not browser.find_elements("css selector", ".about")


@pytest.mark.parametrize("preset", ["short-rtt", "steer"])
def test_the_page_opens_from_a_folder(browser: Any, tmp_path: Path, preset: str) -> None:
    folder = tmp_path / "a folder, ü"
    folder.mkdir()
    shutil.copy(PAGE / "index.html", folder)
    page = Page(browser, (folder / "index.html").as_uri(), preset=preset)
    state = page.finish()
    for plain, score in zip(state["scenarios"], state["scores"], strict=True):
        sharing = Sharing.of_trace(simulate(native_of(plain), seed=1), 0.25)
        assert score["fairPower"] == pytest.approx(sharing.fair_power, rel=1e-6)
    page.find("#add").click()
    page.wait("another flow", lambda one: len(one["settings"]["flows"]) == 1 + len(state["settings"]["flows"]))
    link = browser.current_url
    browser.get("about:blank")
    browser.get(link)
    assert len(page.finish()["settings"]["flows"]) == 1 + len(state["settings"]["flows"])
    page.assert_quiet()


@pytest.mark.skipif(not SITE_PAGE.is_file(), reason="the site has no playground: `make playground docs` builds both")
@pytest.mark.parametrize("where", ["index.html", "playground.html"])
def test_the_sites_button_opens_the_page_from_a_folder(browser: Any, where: str) -> None:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get((SITE_PAGE.parents[1] / where).as_uri())
    browser.find_element("link text", "Open the playground").click()
    state = wait_until(browser, lambda: browser.execute_script("return window.playground?.state()"))
    assert state["settings"]["preset"] == DATA["presets"][0]["name"]
    assert browser.get_log("browser") == []
