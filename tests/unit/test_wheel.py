"""The wheel has all files of the package and nothing else, the right metadata, and works from where it is unpacked."""

from __future__ import annotations

import email.message
import email.parser
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest
import trove_classifiers
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import kfjob
from tests.wheels import ROOT

INFO = f"kfjob-{kfjob.__version__}.dist-info"
KINDS = {".py", ".pyi", ".typed", ".html", ".css", ".js", ".json"}
RENDER = """
import sys
import kfjob
from kfjob.joblog.diagnose.diagnosis import Diagnosis, Verdict
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.report.page import Report, render_page
assert kfjob.__file__.startswith(sys.argv[1]), kfjob.__file__
diagnosis = Diagnosis(headline="", verdict=Verdict.UNKNOWN)
print(render_page(Report(name="llama", view=JobView(config=ObserveConfig()), diagnosis=diagnosis)))
"""


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with ZipFile(wheel) as archive:
        return email.parser.Parser().parsestr(archive.read(f"{INFO}/METADATA").decode())


def test_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    files = subprocess.run(["git", "ls-files", "kfjob"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    names = set(ZipFile(wheel).namelist())
    assert {name for name in names if not name.startswith(f"{INFO}/")} == set(files)
    own = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert {name.removeprefix(f"{INFO}/") for name in names if name.startswith(f"{INFO}/")} == own
    assert {PurePosixPath(name).suffix or PurePosixPath(name).name for name in files} <= KINDS | {"py.typed"}
    assert not [name for name in names if {"tests", "recordings", "benchmarks"} & set(PurePosixPath(name).parts)]


def test_metadata_names_the_licence_and_known_classifiers_and_no_address(wheel, metadata):
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Version"] == kfjob.__version__
    assert set(metadata.get_all("Classifier", [])) <= trove_classifiers.classifiers
    assert metadata.get_all("Project-URL") is None
    assert metadata["Home-page"] is None
    with ZipFile(wheel) as archive:
        assert archive.read(f"{INFO}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_report_renders_from_the_wheel(wheel, tmp_path):
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)  # noqa: S202 - our own wheel
    command = [sys.executable, "-c", RENDER, str(tmp_path)]
    page = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert page.stdout.startswith("<!DOCTYPE html>")


def test_a_clean_clone_builds_the_same_wheel_from_its_source_archive(wheel, tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(clone)], check=True)
    (source,) = SdistBuilder(str(clone)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(source) as archive:
        names = set(archive.getnames())
        archive.extractall(tmp_path)  # noqa: S202 - our own archive; `filter` exists from Python 3.11.4 on
    root = Path(source).name.removesuffix(".tar.gz")
    outside = {name.partition("/")[2] for name in names if not name.startswith(f"{root}/kfjob/")}
    assert outside == {"README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
    (built,) = WheelBuilder(str(tmp_path / root)).build(directory=str(tmp_path), versions=["standard"])
    files = subprocess.run(["git", "ls-tree", "-r", "--name-only", "HEAD", "kfjob"], cwd=ROOT, check=True, capture_output=True)
    committed = set(files.stdout.decode().split())
    assert {name for name in ZipFile(built).namelist() if not name.startswith(f"{INFO}/")} == committed
