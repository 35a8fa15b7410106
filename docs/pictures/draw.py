"""Draw the pictures of the README from the recording of a real run, with the code of this checkout.

Run it as `python docs/pictures/draw.py`. With `check` it compares the pictures with what this checkout would draw. With
`record` it makes a new recording: it trains examples/tiny-llama.yaml on this machine.

The recording has the job in its first line and one event in each further line. The live view is an SVG that is the same on each
machine. The report is a page; headless Chromium makes its pictures. Fonts differ between machines, so `check` compares the
checksum of the page.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import yaml
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

import kfjob
from kfjob.cli.display import Display
from kfjob.cli.live_display import panel, style_message
from kfjob.joblog import events, observe_config
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.ranking import diagnose
from kfjob.joblog.pods.log_spans import LogSpans
from kfjob.joblog.program_output import ProgramOutput
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from kfjob.objects import names
from kfjob.report.page import Report, render_page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECORDING, CHECKSUM = "tiny-llama.jsonl", "report.sha256"
SHAPES: dict[str, Any] = {
    shape.__name__: shape
    for shape in (
        events.JobChanged, events.KubernetesEvent, events.LinesSkipped, events.LogGap, events.LogLine, events.OpenLine,
        events.PodChanged, events.Tick, events.WorkloadStatus,
    )
}  # fmt: skip
COLUMNS, LINES_ABOVE = 104, 9
STEP = 180
"""The step at which the live view is drawn."""
PAGE_SIZE = (1200, 835)
SCHEMES = {
    "light": TerminalTheme(
        (255, 255, 255), (31, 35, 40),
        [(36, 41, 47), (207, 34, 46), (17, 99, 41), (77, 45, 0), (9, 105, 218), (130, 80, 223), (27, 124, 131),
         (110, 119, 129)],
        [(140, 149, 159), (164, 14, 38), (26, 127, 55), (99, 60, 1), (33, 139, 255), (164, 117, 249), (49, 146, 170),
         (87, 96, 106)],
    ),
    "dark": TerminalTheme(
        (13, 17, 23), (230, 237, 243),
        [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255), (57, 197, 207),
         (177, 186, 196)],
        [(110, 118, 129), (255, 161, 152), (86, 211, 100), (227, 179, 65), (121, 192, 255), (210, 168, 255), (86, 212, 221),
         (255, 255, 255)],
    ),
}  # fmt: skip
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""What rich fills in: without fonts from the network."""


@dataclass(frozen=True)
class Recording:
    """A job after its end, and its events."""

    job: events.JobSnapshot
    events: list[events.Event]

    @property
    def first_view(self) -> JobView:
        """The view before the first event."""
        return JobView(
            config=observe_config.decode(self.job.observe_config or "", name_pods=partial(names.pod_names, self.job.name))
            or fail(),
            local=True,
        )


def fail() -> Any:
    """Reject a recording that this version cannot read."""
    raise SystemExit(f"error: cannot read {RECORDING}\nhint: python docs/pictures/draw.py record")


def read_recording(folder: Path) -> Recording:
    """Read the recording."""
    job, *lines = map(msgspec.json.decode, (folder / RECORDING).read_bytes().splitlines())
    return Recording(
        msgspec.convert(job, events.JobSnapshot), [msgspec.convert(line, SHAPES[line.pop("is")]) for line in lines]
    )


class Lines(Display):
    """The lines that the live display prints above its panel."""

    def __init__(self, name: str) -> None:
        super().__init__(SimpleNamespace(ref=SimpleNamespace(name=name)), ProgramOutput())  # type: ignore[arg-type]
        self.lines: list[Text] = []

    def show_message(self, time: int | None, subject: str, text: str) -> None:
        """Keep a message."""
        self.lines.append(style_message(time, subject, text, width=COLUMNS))

    def show_line(self, text: str) -> None:
        """Keep a line of the program."""
        self.lines.append(Text(text))

    def show_stage(self, view: JobView) -> None:
        """Do nothing: the panel shows the stage."""

    def show_progress(self, view: JobView, now: float) -> None:
        """Do nothing: the panel shows the progress."""


def draw_live_view(recording: Recording, scheme: str) -> str:
    """Return the live view of `kfjob submit --follow` as SVG, at a step in the middle of the run."""
    name, view, display = recording.job.name, recording.first_view, Lines(recording.job.name)
    for event in recording.events:
        view = reduce(view, event)
        display.update(view, event, 0.0)
        if (view.training.step or 0) >= STEP and isinstance(event, events.Tick):
            break
    console = Console(
        file=StringIO(), record=True, width=COLUMNS, force_terminal=True, color_system="standard", legacy_windows=False
    )
    console.print(Text.assemble(("$ ", "dim"), (f"kfjob submit examples/{name}.yaml --follow", "bold")))
    if len(display.lines) > LINES_ABOVE:
        console.print(Text("…", style="dim"))
    for line in display.lines[-LINES_ABOVE:]:
        console.print(line, no_wrap=True, overflow="ellipsis")
    console.print(panel(name, view, width=COLUMNS))
    return console.export_svg(title="", theme=SCHEMES[scheme], code_format=SVG, unique_id="kfjob")


def render_report(recording: Recording) -> str:
    """Return the page that `kfjob report` writes a minute after the end of the run."""
    job, view, symptoms, spans = recording.job, recording.first_view, SymptomCollector(), LogSpans()
    for event in recording.events:
        view = reduce(view, event)
        symptoms.feed(event, view)
        spans.feed(event)
    return render_page(
        Report(
            name=job.name,
            view=view,
            diagnosis=diagnose(symptoms, view, job=job.name),
            warnings=symptoms.warnings.ranked(),
            spans=spans.by_pod,
            facts={"namespace": job.namespace, "launch": job.launch, "backend": "local"},
            spec=yaml.safe_dump(msgspec.json.decode(job.spec or "{}"), sort_keys=False, allow_unicode=True, width=110),
            created=(job.job.ended or 0) + 60_000_000_000,
            version=kfjob.__version__,
        )
    )


def make_pictures(recording: Recording) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each file that is the same on every machine."""
    for scheme in SCHEMES:
        yield f"live-{scheme}.svg", draw_live_view(recording, scheme)
    yield CHECKSUM, hashlib.sha256(render_report(recording).encode()).hexdigest() + "\n"


def check(folder: Path) -> int:
    """Print the pictures that are stale, and return the exit code."""
    stale = [name for name, text in make_pictures(read_recording(folder)) if _read(folder / name) != text]
    stale += [name for name in map("report-{}.png".format, SCHEMES) if not (folder / name).exists()]
    if stale:
        print(f"error: stale pictures: {', '.join(stale)}\nhint: python docs/pictures/draw.py", file=sys.stderr)
    return 1 if stale else 0


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def draw(folder: Path) -> int:
    """Write all pictures."""
    recording = read_recording(folder)
    browser = shutil.which("chromium-headless-shell")
    if browser is None:
        print("error: chromium-headless-shell is not installed\nhint: scripts/packages install tests", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        page = Path(temporary) / "report.html"
        page.write_text(render_report(recording), encoding="utf-8")
        for scheme in SCHEMES:
            options = [f"--window-size={PAGE_SIZE[0]},{PAGE_SIZE[1]}", "--force-device-scale-factor=1.2", "--hide-scrollbars"]
            options += [
                f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
                f"--user-data-dir={temporary}/p",
            ]
            picture = f"--screenshot={folder / f'report-{scheme}.png'}"
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", *options, picture, page.as_uri()]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
    for name, text in make_pictures(recording):
        (folder / name).write_text(text, encoding="utf-8")
    return 0


def record(folder: Path) -> int:
    """Train the example on this machine and write its events to the recording, without the names of this machine."""
    with tempfile.TemporaryDirectory() as state:
        os.environ |= {"KFJOB_STATE": state, "KFJOB_BACKEND": "local", "KFJOB_USER": "you"}
        os.chdir(ROOT)
        kfjob.submit("examples/tiny-text.yaml").wait(check=True)
        run = kfjob.submit("examples/tiny-llama.yaml")
        try:
            followed = [event for _, event in run.follow()]
            lines = [_to_record(run.snapshot()), *({"is": type(event).__name__, **_to_record(event)} for event in followed)]
        finally:
            run.stop()
        text = "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)
        for own, replacement in ((state, "/home/you/.local/state/kfjob"), (str(ROOT), "/home/you/kfjob")):
            text = text.replace(own, replacement)
    (folder / RECORDING).write_text(re.sub(rf"\b{re.escape(socket.gethostname())}\b", "laptop", text), encoding="utf-8")
    return 0


def _to_record(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(value)}
    return {name: item for name, item in msgspec.to_builtins(value).items() if getattr(value, name) != defaults[name]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", nargs="?", choices=("draw", "check", "record"), default="draw")
    parser.add_argument("--folder", type=Path, default=HERE, help="folder of the recording and the pictures")
    arguments = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    sys.exit({"draw": draw, "check": check, "record": record}[arguments.action](arguments.folder))
