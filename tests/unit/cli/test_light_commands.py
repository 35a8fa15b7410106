"""The commands around a spec import nothing heavy, and say what they do."""

from __future__ import annotations

import pytest

from kfjob.cli.main import COMMANDS, run
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
def test_they_import_nothing_heavy(here, argv):
    (here / "job.yaml").write_text("name: a\nimage: b\ncommand: c\n")
    (here / "t.yaml").write_text(MANIFEST)
    (here / "acc.yaml").write_text("num_processes: 1\n")
    assert modules_after(*argv).isdisjoint(HEAVY)


@pytest.mark.parametrize("name", ["init", "explain", "diff", "schema", "instances", "import", "export"])
def test_each_has_a_help_text_and_costs_nothing_to_ask(name):
    assert modules_after(name, "--help").isdisjoint({*HEAVY, "pydantic"})


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_list_is_there(name, capsys):
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Usage: kfjob " in out
    assert len(out.splitlines()) > 4
