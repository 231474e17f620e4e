"""The web page in headless Chromium: every view renders without a console error, and links work.

With HERONRY_SCREENSHOTS=1, the screenshots of the documentation are written to docs/images.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heron_control.inspection.streaming_runs import claimed
from heron_runtime.model.plan import GenerationPhase
from heron_runtime.state import open_store
from heron_runtime.state.store import StateStore
from heron_runtime.wire.master import CheckpointStatus, CheckpointSummary
from tests.support.stub_topology import StubTopology, word_count
from tests.support.tracker_process import TrackerProcess, tracker
from tests.support.waiting import wait_until

webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
from selenium.webdriver.common.by import By  # noqa: E402  # after the check that selenium is there
from selenium.webdriver.common.keys import Keys  # noqa: E402  # the same
from selenium.webdriver.support.ui import Select  # noqa: E402  # the same

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
EVIL = "<img src=x onerror=window.evil=1>"
SIZE = (1440, 1180)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateStore]:
    folder = tmp_path_factory.mktemp("browser")
    opened = open_store(f"files://{folder}/state")
    opened.open()
    opened.folder = folder  # type: ignore[attr-defined]
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def played(store: Any) -> Iterator[StubTopology]:
    topology = StubTopology(store, store.folder)
    topology.report()
    topology.press("count")
    yield topology
    topology.close()


@pytest.fixture(scope="module")
def evil(store: Any) -> Iterator[StubTopology]:
    topology = StubTopology(store, store.folder, word_count("Invoices", EVIL))
    topology.report(minutes=2)
    topology.errors["container_1_sentences_1"] = EVIL
    topology.write("container_1_sentences_1", f"\x1b[31m{EVIL}\n")
    yield topology
    topology.close()


@pytest.fixture(scope="module")
def kept(store: Any) -> Iterator[StubTopology]:
    made = word_count("Exact")
    topology = StubTopology(
        store, store.folder, replace(made, config={**made.config, "topology.reliability.mode": "EFFECTIVELY_ONCE"})
    )
    topology.report(minutes=2)
    yield topology
    topology.close()


@pytest.fixture(scope="module")
def rest(store: Any, played: StubTopology, evil: StubTopology, kept: StubTopology) -> Iterator[TrackerProcess]:
    with tracker("--cluster", f"local=files://{store.folder}/state", log=store.folder / "log") as process:
        wait_until(lambda: process.raw("/readyz")[0] == 200)
        yield process


def chromium(*extra: str) -> Any:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("Chromium is missing: run deploy/browser-setup")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    size = f"--window-size={SIZE[0]},{SIZE[1]}"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", size, *extra):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


@pytest.fixture(scope="module")
def opened_browser() -> Iterator[Any]:
    found = chromium()
    found.set_page_load_timeout(120)
    yield found
    found.quit()


@pytest.fixture
def browser(opened_browser: Any) -> Iterator[Any]:
    """Yield a browser; its console must be empty when the test ends."""
    opened_browser.get_log("browser")
    yield opened_browser
    assert opened_browser.get_log("browser") == []


def shows(browser: Any, selector: str, text: str = "") -> Any:
    """Wait for an element that contains the text; return it."""

    def find() -> Any:
        found = browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].find(e => e.textContent.includes(arguments[1]))",
            selector, text,
        )  # fmt: skip
        return found or False

    return wait_until(find)


def taken(browser: Any, selector: str, text: str) -> tuple[str, str]:
    """Return text and HTML of an element that contains the text, read in one step between two renderings."""
    shows(browser, selector, text)
    found: list[str] = browser.execute_script(
        "const e = [...document.querySelectorAll(arguments[0])].find(e => e.textContent.includes(arguments[1]));"
        "return [e.innerText, e.outerHTML]",
        selector, text,
    )  # fmt: skip
    return found[0], found[1]


def click(browser: Any, selector: str, text: str = "") -> None:
    """Click the current element: the page renders again every few seconds."""
    done = wait_until(lambda: _try(lambda: (shows(browser, selector, text).click(), True)[1]))
    assert done


def _try(action: Callable[[], bool]) -> bool:
    from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException

    try:
        return action()
    except (StaleElementReferenceException, ElementClickInterceptedException):
        return False


def screenshot(browser: Any, name: str) -> None:
    file = (IMAGES if os.environ.get("HERONRY_SCREENSHOTS") else Path(os.environ.get("TMPDIR", "/tmp"))) / f"{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    assert browser.save_screenshot(str(file))
    assert file.stat().st_size > 10_000


def test_list_shows_topologies(browser: Any, rest: TrackerProcess) -> None:
    browser.get(rest.url + "/")
    row, drawn = taken(browser, "#topologies tbody tr", "WordCount")
    for text in ("running", "local/ada/default", "11", "ms", "/s"):
        assert text in row
    assert "count" in row  # the slow one
    assert '<span class="state press"><svg' in drawn
    shows(browser, "#live", "live")
    screenshot(browser, "topologies")
    browser.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("wordc")
    wait_until(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#topologies tbody tr")) == 1)
    click(browser, "#topologies th button", "Tasks")
    shows(browser, "th[aria-sort=ascending]", "Tasks")


def test_unreachable_tracker_is_not_shown_as_an_empty_list(opened_browser: Any, rest: TrackerProcess) -> None:
    """The page has loaded, and the requests for its contents fail."""
    opened_browser.execute_cdp_cmd("Network.enable", {})
    opened_browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/api/v1/topologies*"]})
    try:
        opened_browser.get(rest.url + "/?blocked")
        told, _ = taken(opened_browser, "#topologies", "tracker is unreachable")
        assert "No topology is running" not in told
    finally:
        opened_browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    shows(opened_browser, "#topologies tbody tr", "WordCount")


def test_streaming_runs_are_shown_while_they_run(browser: Any, rest: TrackerProcess, store: Any) -> None:
    about = {"file": EVIL, "master": "local[2]", "checkpoint": "/c", "output": "/o", "every_seconds": 1.0}
    with claimed("words", store.folder / "pipeline" / "runs", **about, ui="http://127.0.0.1:4040") as claim:
        claim.tell(
            state="waiting", micro_batch=2, files=1, rows=3_000, batch_seconds=2.0, state_bytes=4_096, state_rows=5_000
        )
        browser.get(rest.url + "/")
        drawn, _ = taken(browser, "#streaming tbody tr", "words")
        for text in ("waiting", "3,000", "1,500/s", "5,000", "page"):
            assert text in drawn
        (page,) = browser.find_elements(By.CSS_SELECTOR, "#streaming a")
        assert page.get_attribute("href") == "http://127.0.0.1:4040/"
    browser.get(rest.url + "/")
    shows(browser, "#topologies", "Invoices")
    assert not browser.find_element(By.ID, "streaming").is_displayed()


def test_ended_topologies_are_listed_with_their_history(browser: Any, rest: TrackerProcess, store: Any) -> None:
    pytest.importorskip("duckdb", reason="needs pip install 'heronry[history]'")
    import pyarrow as pa
    import pyarrow.parquet as pq

    from heron_runtime.model.history import (
        ABOUT,
        EVENTS,
        ComponentSummary,
        HistoryEvent,
        MetricRow,
        TopologySummary,
        date_of,
        day_folder,
        file_name,
    )
    from metrics_manager.sinks.history import event_table
    from tests.support.history_files import write_raw

    folder = store.folder / "history/local/ada/default/Ended/Ended-1"
    row = MetricRow(1_764_028_800_000, 1, "word", "container_1_word_1", "__emit-count/default", "counter", 1.0, 600.0)
    write_raw(folder, 1, [row, replace(row, start_ms=row.start_ms + 10_000)])
    (folder / ABOUT).write_text(
        TopologySummary(1_764_028_800.0, "1.1", 1, (ComponentSummary(EVIL, True, 3),)).to_json()
    )
    kinds = ("pressure", "restore")
    events = [HistoryEvent(row.start_ms + n, kinds[n % 2], 1, "word", "", 1, f"event {n}", EVIL) for n in range(60)]
    day = folder / EVENTS / day_folder(date_of(row.start_ms))
    day.mkdir(parents=True)
    pq.write_table(event_table(pa, events), day / file_name(1, 1), store_schema=False)
    browser.get(rest.url + "/")
    click(browser, "#ended a", "Ended")
    drawn, _ = taken(browser, "#history tbody tr", "__emit-count/default")
    for text in ("word", "1,200", "60/s"):
        assert text in drawn
    assert browser.find_elements(By.CSS_SELECTOR, "#history svg.spark")
    shows(browser, "#events", "event 59")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#events li")) == 50
    click(browser, "button", "Older")
    shows(browser, "#events", "event 9")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#events li")) == 10
    Select(browser.find_element(By.CSS_SELECTOR, "select[aria-label='Kind of events']")).select_by_value("restore")
    wait_until(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#events li")) == 30)
    assert "pressure" not in browser.find_element(By.CSS_SELECTOR, "#events").text
    Select(browser.find_element(By.CSS_SELECTOR, "select[aria-label='Kind of events']")).select_by_value("plan")
    shows(browser, "#events", "None.")


@pytest.mark.core
def test_navigation_from_the_list_to_a_growing_log(browser: Any, rest: TrackerProcess, played: StubTopology) -> None:
    browser.get(rest.url + "/")
    click(browser, "#topologies a", "WordCount")
    shows(browser, "h1", "WordCount")
    assert browser.title == "WordCount – Heron"
    nodes = wait_until(lambda: browser.find_elements(By.CSS_SELECTOR, "svg .node"))
    assert len(nodes) == 6
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg .edge")) == 6
    shows(browser, "#pressure", "count task")
    for text in ("Lag, oldest tree", "most in 3 h", "Spouts held back", "Stream manager deaths", "690 MiB / 2.0 GiB"):
        shows(browser, "#health", text)
    shows(browser, "#reasons .chip", "exception in split")
    shows(browser, "#reasons .chip", "timed out")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#health .meter .part")) == 2
    assert shows(browser, ".node.pressed", "count")
    click(browser, ".node text.title", "count")
    shows(browser, "#detail h2", "Component count")
    shows(browser, "#detail-body td", "__execute-count/split/default")
    for window in ("10 min", "1 h", "3 h", "all time"):
        shows(browser, "#detail-body th", window)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#containers tr.picked")) == 3
    gauge, drawn = taken(browser, "#detail-body tr", "__gateway-in-stream-queue-size")
    assert "≤" in gauge  # minimum
    assert "≥" in gauge  # maximum
    assert "KiB" in gauge
    assert 'class="spark"' in drawn
    assert 'class="line"' in drawn
    assert re.search('class="name mono" title="[^"]*bytes waiting', drawn)
    screenshot(browser, "topology")
    browser.execute_script(
        "[...document.querySelectorAll('#detail-body h3')].find(e => e.textContent.startsWith('Lat')).scrollIntoView()"
    )
    screenshot(browser, "gauges")
    browser.execute_script("scrollTo(0, 0)")
    click(browser, "#containers button", "container_1_split_5")
    shows(browser, "#detail h2", "container_1_split_5")
    click(browser, "[role=tab]", "Exceptions")
    click(browser, "#detail-body summary", "ValueError")
    shows(browser, "#detail-body details[open] pre", "Traceback")
    click(browser, "[role=tab]", "Log")
    shows(browser, "#log", "batch 399 done")
    played.write("container_1_split_5", "a line that was added\n")
    shows(browser, "#log", "a line that was added")
    scrolled = "const l = document.querySelector('#log'); return l.scrollTop + l.clientHeight >= l.scrollHeight - 8"
    wait_until(lambda: browser.execute_script(scrolled))
    screenshot(browser, "log")
    click(browser, "[role=tab]", "Config")
    shows(browser, "#detail-body td", "topology.reliability.mode")
    browser.back()
    shows(browser, "[role=tab][aria-selected=true]", "Log")


def test_graph_is_reachable_by_keyboard(browser: Any, rest: TrackerProcess) -> None:
    browser.get(rest.url + "/#/topology/local/ada/default/WordCount")
    shows(browser, ".node text.title", "rank")
    focus = "return document.activeElement.getAttribute('aria-label') || ''"  # in one step: the page renders again
    for _ in range(20):
        if "bolt rank" in browser.execute_script(focus):
            break
        webdriver.ActionChains(browser).send_keys(Keys.TAB).perform()
    else:
        pytest.fail("Tab never reaches the node of rank")
    webdriver.ActionChains(browser).send_keys(Keys.ENTER).perform()
    shows(browser, "#detail h2", "Component rank")
    shows(browser, ".node[aria-pressed=true]", "rank")


def test_changes_appear_without_a_reload(browser: Any, rest: TrackerProcess, store: Any) -> None:
    browser.get(rest.url + "/")
    shows(browser, "#topologies a", "WordCount")
    newer = StubTopology(store, store.folder, word_count("Newer"))
    shows(browser, "#topologies a", "Newer")
    newer.pause()
    shows(browser, "#topologies tr .state.calm", "paused")
    newer.kill()
    newer.close()
    wait_until(lambda: "Newer" not in browser.find_element(By.ID, "topologies").text)


def test_hostile_names_stay_text(browser: Any, rest: TrackerProcess) -> None:
    browser.get(rest.url + "/#/topology/local/ada/default/Invoices")
    shows(browser, ".node title", EVIL)
    click(browser, ".node text.title", "count<img")
    shows(browser, "#detail h2", EVIL)
    shows(browser, "#containers td", EVIL)
    click(browser, "#containers button", "container_1_sentences_1")
    click(browser, "[role=tab]", "Log")
    shows(browser, "#log", EVIL)
    assert browser.execute_script("return window.evil") is None
    assert not browser.find_elements(By.CSS_SELECTOR, "main img")


def test_missing_topology_is_reported(opened_browser: Any, rest: TrackerProcess) -> None:
    opened_browser.get(rest.url + "/#/topology/local/ada/default/Nobody")
    shows(opened_browser, "#notice", "does not exist")
    opened_browser.get_log("browser")  # Chromium itself reports the 404


def test_documentation_page(browser: Any, rest: TrackerProcess) -> None:
    browser.get(rest.url + "/docs")
    shows(browser, "summary", "/topologies/metrics/query")


def test_state_is_shown_for_topologies_that_keep_it(browser: Any, rest: TrackerProcess, kept: StubTopology) -> None:
    browser.get(rest.url + "/#/topology/local/ada/default/WordCount")
    shows(browser, "#health dt", "Lag")
    assert not browser.find_element(By.CSS_SELECTOR, "#kept").is_displayed()
    last = CheckpointSummary(12, time.time() - 30, 120.0, 14.0, 4096, 2)
    kept.tasks_state = CheckpointStatus(
        3, GenerationPhase.RUNNING, "task 2: it was restarted", 11, under=13, under_ms=1500, waits_for=(2,), last=last,
        restores=1, phase_ms=60_000,
    )  # fmt: skip
    browser.get(rest.url + "/#/topology/local/ada/default/Exact")
    text = taken(browser, "#kept", "3, running")[0]
    for part in ("12", "120 ms", "14.0 ms", "4.0 KiB", "the last after task 2", "Checkpoint 13 is under way for 1.5 s"):
        assert part in text
    kept.tasks_state = CheckpointStatus(9, GenerationPhase.FAILED, "task 2: ValueError: 5", 12, last=last)
    shows(browser, "#trouble", "generation 9 has failed: task 2: ValueError: 5; fix the cause")
    shows(browser, "h1", "failing")


def test_dark_mode(rest: TrackerProcess) -> None:
    browser = chromium("--force-dark-mode")
    try:
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        )
        browser.get(rest.url + "/#/topology/local/ada/default/WordCount?component=count")
        shows(browser, "#detail-body td", "__execute-count")
        background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert background == "rgb(18, 22, 27)"
        screenshot(browser, "topology-dark")
        assert browser.get_log("browser") == []
    finally:
        browser.quit()
