"""A file that a user names may be a FIFO, which has no end before its writer comes, or a device without an end."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import pytest

import kfjob
from kfjob.base.errors import KfjobError
from kfjob.cli.main import main
from kfjob.trainer.data.token_files import read_header

ROOT = Path(kfjob.__file__).parent
OWN = {
    "api/job_script.py": "checks the size and the kind of the file",
    "local/launch.py": "the log of kfjob's own supervisor",
    "local/proc.py": "/proc",
    "api/images/build.py": "the id that the builder has just written to a private folder",
    "api/preflight/trial.py": "a file of the package",
    "cluster/connect.py": "the namespace that Kubernetes writes for a pod",
    "report/assets.py": "a file of the package",
    "spec/instances.py": "a file of the package",
    "objects/crd_schema.py": "a file of the package",
    "trainer/data/tiny_text.py": "the source files of the Python library",
    "trainer/dcp_reader.py": "a method of the checkpoint's storage",
    "trainer/process_identity.py": "/proc",
    "trainer/storage/folder.py": "the probe that it has just written",
}
"""Modules that read whole files without `kfjob.base.parsing`, and why they may."""


def reads_whole_files(source: str) -> bool:
    """Return whether a module calls `read_text` or `read_bytes` of an object."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr in ("read_text", "read_bytes") for call in calls)


def test_whole_files_are_read_within_a_limit():
    modules = {str(file.relative_to(ROOT)) for file in ROOT.rglob("*.py") if reads_whole_files(file.read_text())}
    assert modules - OWN.keys() == set(), "read them with `kfjob.base.parsing.read_document`"
    assert OWN.keys() - modules == set(), "these calls are gone"


@pytest.fixture(params=["fifo", "device"])
def endless(request, tmp_path) -> str:
    """Return the path of a file that nobody can read to its end."""
    if request.param == "device":
        return "/dev/zero"
    os.mkfifo(tmp_path / "fifo")
    return str(tmp_path / "fifo")


def test_model_without_an_end_is_a_problem_of_the_spec(endless, tmp_path, capsys):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to(endless)
    spec = {"name": "t", "train": {"model": str(tmp_path / "model"), "data": "synthetic", "max_steps": 2}}
    (tmp_path / "job.json").write_text(json.dumps(spec))
    with pytest.raises(SystemExit) as exited:
        main(["validate", str(tmp_path / "job.json"), "--backend", "local"])
    assert exited.value.code
    shown = capsys.readouterr()
    assert "`config.json` is not a regular file" in shown.out + shown.err


def test_header_of_tokens_without_an_end_is_an_error(endless, tmp_path):
    (tmp_path / "tokens.json").symlink_to(endless)
    with pytest.raises(KfjobError, match="is not a regular file"):
        read_header(tmp_path)
