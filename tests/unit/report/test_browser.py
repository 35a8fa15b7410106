"""The report in a real browser without a screen. A script in the page measures what the browser drew.

The page's Content-Security-Policy allows no other script, so the tests add the digest of their script to the policy of a copy.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kfjob.report.page import render_page
from tests.unit.report.sample import HOSTILE, PODS, events, make_report

TIMEOUT = 90.0
PROBE = """
const box = (element) => {
  const { left, top, width, height } = element.getBoundingClientRect();
  return [left, top, width, height];
};
const visible = [...document.querySelectorAll("svg.chart")].filter((svg) => svg.getClientRects().length);
const lines = (svg) => [...svg.querySelectorAll("path.line")].map((path) => ({
  points: path.getAttribute("d").split(/[ML]/).length - 1, length: path.getTotalLength(), box: box(path),
  stroke: getComputedStyle(path).stroke }));
const first = visible[0], edges = first.getBoundingClientRect();
first.dispatchEvent(new PointerEvent("pointermove", { clientX: edges.left + edges.width / 2, clientY: edges.top + 9 }));
const wide = [...document.querySelectorAll("body *")].filter((element) => !element.closest(".scroll, svg") &&
  element.getBoundingClientRect().right > innerWidth + 1).map((element) => element.tagName + "." + element.className);
const result = {
  charts: visible.map((svg) => ({ name: svg.getAttribute("aria-label").split(":")[0], box: box(svg), lines: lines(svg) })),
  cursor: first.parentElement.querySelector("output").textContent, wide, width: innerWidth,
  letters: visible.map((svg) => 11 * svg.clientWidth / svg.viewBox.baseVal.width),
  page: document.documentElement.scrollWidth, stolen: window.stolen === undefined ? null : window.stolen,
  scripts: document.scripts.length, images: document.images.length, text: document.body.innerText,
  background: getComputedStyle(document.body).backgroundColor, color: getComputedStyle(document.body).color,
  pods: [...document.querySelectorAll(".timeline text.pod")].map((text) => text.firstChild.data),
  resources: performance.getEntriesByType("resource").map((entry) => entry.name),
};
const output = document.createElement("textarea");
output.id = "result"; output.textContent = JSON.stringify(result); document.body.append(output);
"""


def browse(file: Path, *options: str) -> tuple[str, str]:
    """Return the page after its scripts ran, and the messages of the browser's console."""
    browser = shutil.which("chromium-headless-shell")
    assert browser, "chromium-headless-shell is not installed"
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom", *options]
    command.append(f"--user-data-dir={file.parent / 'profile'}")
    process = subprocess.Popen(
        [*command, file.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, err
    return out, "\n".join(line for line in err.splitlines() if "CONSOLE" in line)


def measure(folder: Path, *options: str) -> dict[str, Any]:
    """Return the probe's result. The console, which shows every violation of the policy, is empty."""
    digest = base64.b64encode(hashlib.sha256(PROBE.encode()).digest()).decode()
    page = render_page(make_report(events())).replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    file = folder / "report.html"
    file.write_text(page.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    dom, console = browse(file, *options)
    assert not console
    match = re.search(r'<textarea id="result">(.*?)</textarea>', dom, re.DOTALL)
    assert match, dom[-2000:]
    result: dict[str, Any] = json.loads(html.unescape(match[1]))
    return result


@pytest.mark.browser
def test_curves_and_timeline_are_drawn_and_hostile_text_stays_text(tmp_path):
    result = measure(tmp_path, "--window-size=1200,900")
    points = len(make_report(events()).view.training.curve)
    assert [chart["name"] for chart in result["charts"]] == ["Loss", "Speed", "Learning rate"]
    for chart in result["charts"]:
        left, top, width, height = chart["box"]
        assert min(width, height) > 150
        assert len(chart["lines"]) == (2 if chart["name"] == "Loss" else 1)
        for line in chart["lines"]:
            assert line["points"] == points
            assert line["length"] > 300
            assert left <= line["box"][0] <= left + width
            assert top <= line["box"][1] <= top + height
            assert line["stroke"].startswith("rgb(")
    assert re.fullmatch(r"step 4\d\d · loss [\d.]+ · smoothed [\d.]+", result["cursor"])
    assert result["pods"] == list(PODS)
    assert result["stolen"] is None
    assert (result["scripts"], result["images"]) == (2, 0)
    assert HOSTILE.partition("\x1b")[0] in result["text"]
    assert result["resources"] == []
    assert result["wide"] == []


@pytest.mark.browser
def test_page_fits_a_narrow_window(tmp_path):
    result = measure(tmp_path, "--window-size=500,900")
    assert result["width"] <= 500
    assert result["page"] <= result["width"]
    assert result["wide"] == []
    assert [chart["name"] for chart in result["charts"]] == ["Loss", "Speed", "Learning rate"]
    assert min(result["letters"]) > 7
    tops = [chart["box"][1] for chart in result["charts"]]
    assert tops == sorted(set(tops))  # one below the other


def brightness(colour: str) -> float:
    red, green, blue = (math.pow(int(part) / 255, 2.2) for part in re.findall(r"\d+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((brightness(first), brightness(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_high_in_both_colour_schemes(tmp_path, scheme: str):
    result = measure(tmp_path, f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}")
    assert (brightness(result["background"]) < 0.2) is (scheme == "dark")
    assert contrast(result["color"], result["background"]) > 7
    assert min(contrast(chart["lines"][-1]["stroke"], result["background"]) for chart in result["charts"]) > 3


@dataclass(frozen=True)
class Listener:
    url: str
    paths: list[str]  # of the requests


@pytest.fixture
def listener() -> Iterator[Listener]:
    paths: list[str] = []

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Listener(f"http://127.0.0.1:{server.server_address[1]}", paths)
    server.shutdown()
    server.server_close()


@pytest.mark.browser
@pytest.mark.parametrize("policy", ["its own", "none"])
def test_policy_blocks_injected_images_styles_and_scripts(tmp_path, listener: Listener, policy: str):
    """The test injects them as if escaping had failed. Without the policy they act, so the test can fail."""
    injected = (
        f'<img src="{listener.url}/picture"><style>body {{ background: url({listener.url}/style) }}</style>'
        f'<script>document.body.id = "taken"; fetch("{listener.url}/script")</script></body>'
    )
    page = render_page(make_report(events())).replace("</body>", injected)
    if policy == "none":
        page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    dom, console = browse(file)
    violations = {directive for directive in ("img-src", "style-src", "script-src") if directive in console}
    assert violations == ({"img-src", "style-src", "script-src"} if policy == "its own" else set())
    assert bool(listener.paths) is (policy == "none")
    assert ('id="taken"' in dom) is (policy == "none")
