from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfjob.api.doctor import machine
from kfjob.api.doctor.findings import Finding
from kfjob.api.settings import Settings

KUBECONFIG = "current-context: test\ncontexts: [{name: test, context: {cluster: c, namespace: ml}}]\n"


def look(name: str, folder: Path, *, path: str = "", **settings: Any) -> list[Finding]:
    here = machine.Machine(
        settings=Settings(state=folder / "state", **settings),
        environ={"PATH": path, "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)},
    )
    return list(machine.CHECKS[name](here))


def a_program(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o700)
    return str(folder)


@pytest.mark.parametrize("name", ["python", "kfjob", "settings", "archive"])
def test_what_is_well_is_said_without_a_remedy(name, tmp_path):
    (finding,) = look(name, tmp_path)
    assert (finding.verdict, finding.remedy) == ("ok", "")
    assert finding.said


def test_torch_is_not_imported_and_its_absence_is_a_warning(tmp_path, monkeypatch):
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert look("torch", tmp_path)[0].verdict == "ok"
    monkeypatch.setattr(metadata, "version", absent)
    (finding,) = look("torch", tmp_path)
    assert (finding.verdict, finding.remedy) == ("warn", machine.INSTALL_TRAINER)


def test_deepspeed_wants_a_compiler_and_ninja(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_version", lambda name: "0.19" if name == "deepspeed" else None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (finding,) = look("deepspeed", tmp_path)
    assert (finding.verdict, finding.remedy) == ("warn", "apt-get install g++ ninja-build")
    assert look("deepspeed", tmp_path, path=a_program(tmp_path, "g++", "ninja"))[0].verdict == "ok"
    monkeypatch.setattr(machine, "_version", lambda _: None)
    assert look("deepspeed", tmp_path) == []


def test_builders_and_etcd_are_found_on_path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none" / "python"))
    assert [look(name, tmp_path)[0].verdict for name in ("builder", "etcd")] == ["warn", "warn"]
    path = a_program(tmp_path, "finch", "buildah", "etcd")
    assert look("builder", tmp_path, path=path)[0].said == "buildah, finch"
    assert look("etcd", tmp_path, path=path)[0].verdict == "ok"


def test_the_envsubst_of_the_python_package_is_a_warning_and_gnus_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert look("envsubst", tmp_path) == []
    path = a_program(tmp_path, "envsubst")
    assert look("envsubst", tmp_path, path=path)[0].verdict == "ok"
    (tmp_path / "envsubst").write_text("#!/usr/bin/python3\nimport sys\nfrom envsubst import main\nsys.exit(main())\n")
    (finding,) = look("envsubst", tmp_path, path=path)
    assert (finding.verdict, finding.remedy) == ("warn", f"rm {tmp_path}/envsubst")
    (tmp_path / "envsubst").unlink()
    os.mkfifo(tmp_path / "envsubst", 0o700)
    assert look("envsubst", tmp_path, path=path)[0].verdict == "ok"


@pytest.mark.parametrize(("free", "verdict"), [(100, "ok"), (5, "warn"), (0.5, "fail")])
def test_disk(free, verdict, tmp_path, monkeypatch):
    usage = SimpleNamespace(free=free * machine.GIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (finding,) = look("disk", tmp_path)
    assert finding.verdict == verdict
    assert bool(finding.remedy) == (verdict != "ok")


def test_a_state_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    (finding,) = look("disk", tmp_path)
    assert (finding.verdict, "KFJOB_STATE" in finding.remedy) == ("fail", True)


def test_a_kubeconfig_is_needed_only_by_who_asks_for_a_cluster(tmp_path):
    assert look("kubeconfig", tmp_path)[0].verdict == "warn"
    assert look("kubeconfig", tmp_path, backend="kubernetes")[0].verdict == "fail"
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    assert look("kubeconfig", tmp_path)[0].said == "context `test`, namespace `ml`"
    assert look("kubeconfig", tmp_path, context="other")[0].verdict == "fail"
