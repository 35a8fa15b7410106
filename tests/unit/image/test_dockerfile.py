"""The project's Dockerfile: the files that it copies, and that all downloads are pinned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kfjob.image.folder import read_folder

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_context_holds_only_copied_files():
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", TEXT, re.MULTILINE)]
    sources = {source for words in copied for source in words}
    files = {entry.path for entry in read_folder(ROOT).entries if entry.kind == "file"}
    assert all(any(file == source or file.startswith(f"{source}/") for file in files) for source in sources)
    assert not [file for file in files if not any(file == source or file.startswith(f"{source}/") for source in sources)]
    assert not [file for file in files if file.endswith(".pyc")]


def test_default_base_has_a_version():
    (base,) = re.findall(r"^ARG BASE_IMAGE=(.*)$", TEXT, re.MULTILINE)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+", base)
    assert set(re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE)) == {"${BASE_IMAGE}", "trainer"}


@pytest.mark.parametrize("name", ["build", "trainer"])
def test_every_package_has_a_version_and_hashes(name: str):
    assert f"requirements/{name}.txt" in TEXT
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    assert not [line for line in lines if not re.match(r"[a-z0-9.-]+(\[[a-z]+\])?==\S+.*--hash=sha256:[0-9a-f]{64}", line)]


def test_packages_are_installed_with_hashes():
    installs = [line for line in TEXT.splitlines() if "-m pip install" in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert "--no-build-isolation" in TEXT
