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
from kfjob.base.units import GIB

KUBECONFIG = "current-context: test\ncontexts: [{name: test, context: {cluster: c, namespace: ml}}]\n"


def run_check(name: str, folder: Path, *, path: str = "", **settings: Any) -> list[Finding]:
    subject = machine.Machine(
        settings=Settings(state=folder / "state", **settings),
        environ={"PATH": path, "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)},
    )
    return list(machine.CHECKS[name](subject))


def make_programs(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o700)
    return str(folder)


def test_missing_torch_is_a_warning(tmp_path, monkeypatch):
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert run_check("torch", tmp_path)[0].verdict == "ok"
    monkeypatch.setattr(metadata, "version", absent)
    (finding,) = run_check("torch", tmp_path)
    assert (finding.verdict, finding.remedy) == ("warn", machine.INSTALL_TRAINER)


def test_deepspeed_needs_a_compiler_and_ninja(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_version", lambda name: "0.19" if name == "deepspeed" else None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (finding,) = run_check("deepspeed", tmp_path)
    assert (finding.verdict, finding.remedy) == ("warn", "apt-get update && apt-get install g++ ninja-build")
    assert run_check("deepspeed", tmp_path, path=make_programs(tmp_path, "g++", "ninja"))[0].verdict == "ok"
    monkeypatch.setattr(machine, "_version", lambda _: None)
    assert run_check("deepspeed", tmp_path) == []


def test_builders_and_etcd_are_found_on_path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none" / "python"))
    assert [run_check(name, tmp_path)[0].verdict for name in ("builder", "etcd")] == ["warn", "warn"]
    path = make_programs(tmp_path, "finch", "buildah", "etcd")
    assert run_check("builder", tmp_path, path=path)[0].message == "buildah, finch"
    assert run_check("etcd", tmp_path, path=path)[0].verdict == "ok"


def test_envsubst_of_the_python_package_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert run_check("envsubst", tmp_path) == []
    path = make_programs(tmp_path, "envsubst")
    assert run_check("envsubst", tmp_path, path=path)[0].verdict == "ok"
    (tmp_path / "envsubst").write_text("#!/usr/bin/python3\nimport sys\nfrom envsubst import main\nsys.exit(main())\n")
    (finding,) = run_check("envsubst", tmp_path, path=path)
    assert (finding.verdict, finding.remedy) == ("warn", f"rm {tmp_path}/envsubst")
    (tmp_path / "envsubst").unlink()
    os.mkfifo(tmp_path / "envsubst", 0o700)
    assert run_check("envsubst", tmp_path, path=path)[0].verdict == "ok"


@pytest.mark.parametrize(("free", "verdict"), [(100, "ok"), (5, "warn"), (0.5, "fail")])
def test_free_disk_space_decides_the_verdict(free, verdict, tmp_path, monkeypatch):
    usage = SimpleNamespace(free=free * GIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (finding,) = run_check("disk", tmp_path)
    assert finding.verdict == verdict
    assert bool(finding.remedy) == (verdict != "ok")


def test_state_folder_that_is_not_writable_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    (finding,) = run_check("disk", tmp_path)
    assert (finding.verdict, "KFJOB_STATE" in finding.remedy) == ("fail", True)


def test_missing_kubeconfig_fails_only_if_settings_name_a_cluster(tmp_path):
    assert run_check("kubeconfig", tmp_path)[0].verdict == "warn"
    assert run_check("kubeconfig", tmp_path, backend="kubernetes")[0].verdict == "fail"
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    assert run_check("kubeconfig", tmp_path)[0].message == "context `test`, namespace `ml`"
    assert run_check("kubeconfig", tmp_path, context="other")[0].verdict == "fail"
