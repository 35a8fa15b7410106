"""The wheel holds the templates, the style and the script of the report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]
RENDER = """
import sys
import kfjob
from kfjob.observe.diagnose.diagnosis import Diagnosis, Verdict
from kfjob.spec.observe_config import ObserveConfig
from kfjob.observe.view import JobView
from kfjob.report.page import Report, render_page
assert kfjob.__file__.startswith(sys.argv[1]), kfjob.__file__
diagnosis = Diagnosis(headline="", verdict=Verdict.UNKNOWN)
print(render_page(Report(name="llama", view=JobView(config=ObserveConfig()), diagnosis=diagnosis)))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    (file,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(file)


def test_wheel_holds_every_file_of_the_package(wheel):
    files = subprocess.run(["git", "ls-files", "kfjob"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert set(files) == {name for name in ZipFile(wheel).namelist() if name.startswith("kfjob/")}


def test_report_renders_from_the_wheel(wheel, tmp_path):
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    command = [sys.executable, "-c", RENDER, str(tmp_path)]
    page = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert page.stdout.startswith("<!DOCTYPE html>")
