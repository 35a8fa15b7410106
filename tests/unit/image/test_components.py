"""Components of an image, in temporary file systems, and without the packages of the control plane."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kfjob.image import components
from tests.missing_packages import run_without

CONTROL_PLANE = ["pydantic", "yaml", "click", "rich", "kubernetes", "boto3", "botocore", "urllib3", "envsubst"]


def run(blocked: list[str], *argv: str) -> subprocess.CompletedProcess[str]:
    return run_without(blocked, f"from kfjob.image.components import main\nsys.exit(main({list(argv)!r}))")


def test_components_without_torch_and_control_plane():
    done = run([*CONTROL_PLANE, "torch"], "-o", "json")
    assert done.returncode == 1, done.stderr  # python-etcd is there and needs urllib3
    parts = {part["name"]: part for part in json.loads(done.stdout)["components"]}
    assert parts["kfjob"]["state"] == "present"
    assert parts["torch"]["state"] == "missing"
    assert parts["python-etcd"]["state"] == "broken"


def test_missing_required_component_is_an_error():
    done = run(["torch", "etcd"], "--require", "torch")
    assert done.returncode == 1
    assert "torch" in done.stderr


def test_folder_named_torch_is_broken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))  # which python takes for a package
    torch, (component,) = components._inspect_torch()
    assert torch is None
    assert (component.name, component.state) == ("torch", "broken")


def part(name: str, root: Path) -> components.Component:
    return next(part for part in components.list_components(root) if part.name == name)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(components, "_inspect_torch", lambda: (None, []))
    return tmp_path


def test_missing_efa_components(bare: Path):
    assert {part(name, bare).state for name in ("efa", "libfabric", "aws-ofi-nccl", "nccl")} == {"missing"}


def test_efa_and_plugin_versions(bare: Path):
    (bare / "opt/amazon/ofi-nccl/lib").mkdir(parents=True)
    (bare / "opt/amazon/efa_installed_packages").write_text("# EFA installer version: 1.37.0\n# Debug packages installed: no\n")
    plugin = bare / "opt/amazon/ofi-nccl/lib/libnccl-net.so"
    plugin.write_bytes(b"\x7fELF\0Initializing aws-ofi-nccl 1.13.2-aws\0")
    (bare / "dev/infiniband").mkdir(parents=True)
    (bare / "dev/infiniband/uverbs0").touch()
    assert part("efa", bare).detail == "installer 1.37.0, 1 device"
    assert part("aws-ofi-nccl", bare).detail == "1.13.2-aws"
    text = "\n".join(components.format_lines(components.list_components(bare)))
    assert "ok  aws-ofi-nccl" in text


@pytest.mark.parametrize(("number", "text"), [(2708, "2.7.8"), (21903, "2.19.3"), (23007, "2.30.7")])
def test_nccl_version_numbers(number: int, text: str):
    class Library:
        @staticmethod
        def ncclGetVersion(component) -> None:  # noqa: N802 - its name
            component._obj.value = number

    assert components._read_nccl_version(Library) == text


@pytest.mark.parametrize(("version", "hint"), [("1.17", "older"), ("1.18", ""), ("2.1", "")])
def test_older_libfabric_has_a_hint(bare: Path, monkeypatch: pytest.MonkeyPatch, version: str, hint: str):
    monkeypatch.setattr(components, "_read_library_version", lambda *_: version)
    assert hint in part("libfabric", bare).hint
    assert bool(part("libfabric", bare).hint) == bool(hint)
