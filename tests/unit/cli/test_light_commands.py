"""Commands around a spec import no heavy packages, and every command has a help text."""

from __future__ import annotations

import pytest

from kfjob.cli.commands import COMMANDS, run
from tests.unit.test_light import HEAVY, modules_after

MANIFEST = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: a}
spec:
  elasticPolicy: {rdzvBackend: c10d}
  pytorchReplicaSpecs:
    Worker: {template: {spec: {containers: [{name: pytorch, image: b, command: [c]}]}}}
"""


@pytest.mark.parametrize(
    "argv",
    [
        ("explain", "job.yaml"),
        ("schema",),
        ("instances",),
        ("init", "new.yaml", "--name", "a"),
        ("import", "torchrun", "torchrun t.py"),
        ("import", "accelerate", "acc.yaml"),
        ("import", "pytorchjob", "t.yaml"),
        ("export", "accelerate", "job.yaml"),
        ("render", "--template", "t.yaml"),
        ("submit", "--template", "t.yaml", "--dry-run", "client"),
        ("submit", "job.yaml", "--dry-run", "client"),
    ],
    ids=" ".join,
)
def test_command_imports_no_heavy_package(here, argv):
    (here / "job.yaml").write_text("name: a\nimage: b\ncommand: c\n")
    (here / "t.yaml").write_text(MANIFEST)
    (here / "acc.yaml").write_text("num_processes: 1\n")
    assert modules_after(*argv).isdisjoint(HEAVY)


@pytest.mark.parametrize("name", ["init", "explain", "diff", "schema", "instances", "import", "export"])
def test_help_imports_neither_heavy_packages_nor_pydantic(name):
    assert modules_after(name, "--help").isdisjoint({*HEAVY, "pydantic"})


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_has_a_help_text(name, capsys):
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Usage: kfjob " in out
    assert len(out.splitlines()) > 4
