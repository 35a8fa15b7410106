"""The report as a browser shows it: a real one, without a screen. What it rendered is asked of the page itself.

The page's own policy forbids any script but its own, so the probe that asks goes into a copy whose policy has its digest.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kfjob.report.page import page
from tests.unit.report.sample import PODS, events, made_of

PATIENCE = 90.0
PROBE = """
const box = (one) => { const at = one.getBoundingClientRect(); return [at.left, at.top, at.width, at.height]; };
const shown = [...document.querySelectorAll("svg.chart")].filter((svg) => svg.getClientRects().length);
const lines = (svg) => [...svg.querySelectorAll("path.line")].map((path) => ({
  look: path.getAttribute("class"), points: path.getAttribute("d").split(/[ML]/).length - 1, length: path.getTotalLength(),
  box: box(path), stroke: getComputedStyle(path).stroke }));
const first = shown[0], inside = first.getBoundingClientRect();
first.dispatchEvent(new PointerEvent("pointermove", { clientX: inside.left + inside.width / 2, clientY: inside.top + 9 }));
const wide = [...document.querySelectorAll("body *")].filter((one) => !one.closest(".scroll, svg") &&
  one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.tagName + "." + one.className);
const letters = shown.map((svg) => 11 * svg.clientWidth / svg.viewBox.baseVal.width);
const told = {
  charts: shown.map((svg) => ({ name: svg.getAttribute("aria-label").split(":")[0], box: box(svg), lines: lines(svg) })),
  cursor: first.parentElement.querySelector("output").textContent, wide, letters, width: innerWidth,
  page: document.documentElement.scrollWidth, stolen: window.stolen === undefined ? null : window.stolen,
  scripts: document.scripts.length, images: document.images.length, back: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.body).color, text: document.body.innerText,
  pods: [...document.querySelectorAll(".timeline text.pod")].map((one) => one.lastChild.data || one.firstChild.data),
  asked: performance.getEntriesByType("resource").map((one) => one.name),
};
const out = document.createElement("textarea");
out.id = "told"; out.textContent = JSON.stringify(told); document.body.append(out);
"""


def browse(file: Path, *options: str) -> tuple[str, str]:
    """The page as it is after its scripts, and what the browser's console said."""
    found = shutil.which("chromium-headless-shell")
    assert found, "chromium-headless-shell is not installed"
    command = [found, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom", *options]
    command.append(f"--user-data-dir={file.parent / 'profile'}")
    process = subprocess.Popen(
        [*command, file.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, err
    return out, "\n".join(line for line in err.splitlines() if "CONSOLE" in line)


def rendered(folder: Path, *options: str) -> dict[str, Any]:
    """What the probe saw; the console was silent."""
    digest = base64.b64encode(hashlib.sha256(PROBE.encode()).digest()).decode()
    made = page(made_of(events())).replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    file = folder / "report.html"
    file.write_text(made.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    dom, console = browse(file, *options)
    assert not console
    found = re.search(r'<textarea id="told">(.*?)</textarea>', dom, re.DOTALL)
    assert found, dom[-2000:]
    told: dict[str, Any] = json.loads(html.unescape(found[1]))
    return told


@pytest.mark.browser
def test_curves_and_timeline_are_seen_and_hostile_words_are_words(tmp_path):
    told = rendered(tmp_path, "--window-size=1200,900")
    points = len(made_of(events()).view.training.curve)
    assert [chart["name"] for chart in told["charts"]] == ["Loss", "Speed", "Learning rate"]
    for chart in told["charts"]:
        left, top, width, height = chart["box"]
        assert min(width, height) > 150
        assert len(chart["lines"]) == (2 if chart["name"] == "Loss" else 1)
        for line in chart["lines"]:
            assert line["points"] == points
            assert line["length"] > 300
            assert left <= line["box"][0] <= left + width
            assert top <= line["box"][1] <= top + height
            assert line["stroke"].startswith("rgb(")
    assert re.fullmatch(r"step 4\d\d · loss [\d.]+ · smoothed [\d.]+", told["cursor"])
    assert told["pods"] == list(PODS)
    assert told["stolen"] is None
    assert (told["scripts"], told["images"]) == (2, 0)
    assert '<img src=x onerror="window.stolen=1">' in told["text"]
    assert told["asked"] == []
    assert told["wide"] == []


@pytest.mark.browser
def test_a_narrow_window_is_enough(tmp_path):
    told = rendered(tmp_path, "--window-size=500,900")
    assert told["width"] <= 500
    assert told["page"] <= told["width"]
    assert told["wide"] == []
    assert [chart["name"] for chart in told["charts"]] == ["Loss", "Speed", "Learning rate"]
    assert min(told["letters"]) > 7
    tops = [chart["box"][1] for chart in told["charts"]]
    assert tops == sorted(set(tops))  # one below the other


def brightness(colour: str) -> float:
    red, green, blue = (math.pow(int(part) / 255, 2.2) for part in re.findall(r"\d+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_day_and_by_night(tmp_path, scheme: str):
    told = rendered(tmp_path, f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}")
    assert (brightness(told["back"]) < 0.2) is (scheme == "dark")
    assert contrast(told["ink"], told["back"]) > 7
    assert min(contrast(chart["lines"][-1]["stroke"], told["back"]) for chart in told["charts"]) > 3


class _Counts(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not on stderr."""


@pytest.fixture
def listener() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Counts)
    server.asked = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.browser
@pytest.mark.parametrize("policy", ["its own", "none"])
def test_the_policy_keeps_a_page_from_the_network_whatever_comes_into_it(tmp_path, listener, policy: str):
    """A picture and a script are put into the page as if escaping had failed: the policy alone must hold them."""
    url = f"http://127.0.0.1:{listener.server_address[1]}"
    injected = f'<img src="{url}/picture"><script>document.body.id = "taken"; fetch("{url}/script")</script></body>'
    made = page(made_of(events())).replace("</body>", injected)
    if policy == "none":
        made = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", made)
    file = tmp_path / "report.html"
    file.write_text(made, encoding="utf-8")
    dom, _ = browse(file)
    assert bool(listener.asked) is (policy == "none")
    assert ('id="taken"' in dom) is (policy == "none")
