"""The pictures of the README are what this checkout draws from the recording; stale ones fail."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.wheels import ROOT

PICTURES = ROOT / "docs" / "pictures"


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PICTURES / "draw.py"), "check", "--folder", str(folder)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_pictures_are_what_this_checkout_draws():
    done = check(PICTURES)
    assert (done.returncode, done.stderr) == (0, "")


def test_stale_pictures_are_named_with_the_command_that_draws_them(tmp_path):
    folder = tmp_path / "pictures"
    shutil.copytree(PICTURES, folder)
    (folder / "report-dark.png").unlink()
    for name in ("live-light.svg", "report.sha256"):
        file = folder / name
        file.write_text("0" + file.read_text(encoding="utf-8"), encoding="utf-8")
    done = check(folder)
    assert done.returncode == 1
    assert done.stderr == (
        "error: stale pictures: live-light.svg, report.sha256, report-dark.png\nhint: python docs/pictures/draw.py\n"
    )


def test_live_view_needs_nothing_from_the_network():
    for file in PICTURES.glob("*.svg"):
        links = re.findall(r"(?:url\(|href=|src=)[^#\s]*", file.read_text(encoding="utf-8").replace('"', ""))
        assert [link for link in links if "://" in link] == []


def test_pages_show_every_picture_for_light_and_dark():
    pages = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/first-job.md"))
    shown = set(re.findall(r'(?:src|srcset)="(?:docs/)?pictures/([^"]+)"', pages))
    assert shown == {file.name for file in PICTURES.iterdir() if file.suffix in {".svg", ".png"}}
