"""Seconds that a reader waits for the inspector's page with a million judgments.

A run of 250,000 cases and 4 scorers (1,000,000 judgments) is written first and served by a process of its own; a
headless Chromium opens it. Each figure is the median of some visits after one that warms the caches. The cold start is
that of `rewardlab inspect` on a small run, from the command to the leaderboard in the browser.
"""

import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...apps.inspector.run_list import REPORT
from ._drawn_run import write_run
from ._scripts import argument_parser, write

KEYS, DISTANCE = 40, 50  # presses of j, and milliseconds between them
BARS = {
    "cold start, s": 5.0,
    "cold start, MiB": 350,
    "first page, s": 2.0,
    "next case, s": 0.3,
    "tab change, s": 1.0,
    "filter, s": 0.5,
    "keys counted": KEYS,
    "server, MiB": 700,
}
"""Measured figure -> what it should not exceed (of the keys: reach); a search reads every text and has none."""
FLAGS = ["--no-sandbox", "--disable-gpu"]
TABS = ("Benchmarks", "Overview", "Judgments")
SMALL = 2_000
"""Cases of the run of the cold start."""
SEARCHES = ("shrd", "etao", "lu i", "nsh", "dru")


def _serve(folder: Path, pipe: Connection) -> None:
    from ...apps.inspector.server import launch
    from ...apps.inspector.settings import InspectConfig
    from ...apps.inspector.site import build

    page = build(InspectConfig(run=str(folder)))
    pipe.send(launch(page))
    pipe.recv()
    page.close(verbose=False)


def measure(address: str, server: int, small: Path, visits: int = 5) -> dict[str, Any]:
    """Visit the page at an address, which the process `server` serves, and start a server over a small run."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        first = _repeated(lambda: _opened(browser, address), visits)
        starts = [_started(browser, small) for _ in range(visits)]
        seconds, memory = (statistics.median(figures) for figures in zip(*starts, strict=True))
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{address}?tab=judgments")
        page.locator("#case .answer").first.wait_for(timeout=120_000)
        outcomes, searches = ["wrong", "right", "all"], [*SEARCHES]
        figures = {
            "cold start, s": round(seconds, 3),
            "cold start, MiB": memory,
            "first page, s": first,
            "next case, s": _repeated(lambda: _next_case(page), 4 * visits),
            "keys counted": _keys_counted(page),
            "filter, s": _repeated(lambda: _filter(page, outcomes), 4 * visits),
            "search, s": _repeated(lambda: _search(page, searches), len(SEARCHES) - 1),
            "tab change, s": max(_repeated(lambda name=name: _tab(page, name), visits) for name in TABS),
            "server, MiB": _peak(server),
        }
        browser.close()
    return {
        "figures": figures,
        "bars": BARS,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "versions": {name: version(name) for name in ("gradio", "duckdb", "playwright")},
    }


def _repeated(act: Callable[[], float], times: int) -> float:
    act()
    return round(statistics.median(act() for _ in range(times)), 3)


def _opened(browser: Any, address: str) -> float:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    start = time.perf_counter()
    page.goto(address)
    page.locator("#leaderboard table, #runs .box").first.wait_for(timeout=120_000)
    seconds = time.perf_counter() - start
    page.close()
    return seconds


def _started(browser: Any, folder: Path) -> tuple[float, int]:
    """Return the seconds from the command to the leaderboard of a new server, and its peak of memory in MiB."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "rewardlab", "inspect", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    line = next(line for line in process.stderr if "http://" in line)
    _opened(browser, next(word for word in line.split() if word.startswith("http://")))
    seconds, memory = time.perf_counter() - start, _peak(process.pid)
    process.kill()
    process.wait()
    return seconds, memory


def _next_case(page: Any) -> float:
    before = page.locator("#case .case-name").inner_text()
    start = time.perf_counter()
    page.keyboard.press("j")
    page.wait_for_function("name => document.querySelector('#case .case-name')?.innerText !== name", arg=before)
    return time.perf_counter() - start


def _position(page: Any) -> int:
    return int(page.locator("#case-place").inner_text().split()[0].replace(",", ""))


def _keys_counted(page: Any) -> int:
    before = _position(page)
    for _ in range(KEYS):
        page.keyboard.press("j")
        page.wait_for_timeout(DISTANCE)
    return _position(page) - before


def _filter(page: Any, outcomes: list[str]) -> float:
    """Choose the next outcome; the outcomes come round."""
    outcomes.append(outcomes.pop(0))
    return _until_position_changes(page, page.locator(f"#judgments-toolbar input[value={outcomes[0]}]").click)


def _search(page: Any, texts: list[str]) -> float:
    """Type the next text, which was not searched before."""
    text = texts.pop(0)
    return _until_position_changes(page, lambda: page.get_by_label("Search").fill(text))


def _until_position_changes(page: Any, act: Callable[[], object]) -> float:
    before = page.locator("#case-place").inner_text()
    start = time.perf_counter()
    act()
    page.wait_for_function("text => ![text, ''].includes(document.querySelector('#case-place').innerText)", arg=before)
    return time.perf_counter() - start


def _tab(page: Any, name: str) -> float:
    other = page.get_by_role("tab", name="Studies")
    other.click()
    start = time.perf_counter()
    page.get_by_role("tab", name=name).click()
    ready = {
        "Benchmarks": "#facts, #benchmarks-note",
        "Overview": "#board-filter, #runs .box",
        "Judgments": "#case .answer",
    }
    page.locator(ready[name]).locator("visible=true").first.wait_for(timeout=60_000)
    return time.perf_counter() - start


def _peak(process: int) -> int:
    """Largest resident memory of a process so far."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a run, serve it, visit it, and print a JSON object."""
    parser = argument_parser(__doc__)
    parser.add_argument("--cases", type=int, default=250_000, help="each is judged by 4 scorers")
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the run is written and kept; one that is there is taken")
    options = parser.parse_args(arguments)
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as temporary:
        folder, small = options.folder or Path(temporary) / "runs" / "eval", Path(temporary) / "small" / "eval"
        for run, cases in ((folder, options.cases), (small, SMALL)):
            if not (run / REPORT).is_file():
                writer = context.Process(target=write_run, args=(run, cases))
                writer.start()
                writer.join()
        pipe, inner = context.Pipe()
        server = context.Process(target=_serve, args=(folder, inner), daemon=True)
        server.start()
        results = {"judgments": 4 * options.cases, **measure(pipe.recv(), int(server.pid or 0), small, options.visits)}
        pipe.send("stop")
        server.join(10)
    write(results, options.output)
    print(json.dumps(results, indent=2))
