"""What the light commands import: `--help` and `render` must not wait for libraries that they do not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kfjob

HEAVY = (
    "torch",
    "transformers",
    "datasets",
    "kubernetes",
    "kubeflow",
    "boto3",
    "botocore",
    "rich",
    "numpy",
    "apprise",
    "prometheus_client",
)
MANIFEST = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: a}
spec:
  elasticPolicy: {rdzvBackend: c10d}
  pytorchReplicaSpecs:
    Worker: {template: {spec: {containers: [{name: pytorch, image: b, command: [c]}]}}}
"""
PROGRAM = """
import sys
from kfjob.cli.commands import run
code = run(sys.argv[1:])
assert code == 0, code
print("\\n" + " ".join(sorted({name.partition('.')[0] for name in sys.modules})))
"""


def modules_after(*argv: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *argv], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", ["", "render", "status", "init", "explain", "instances", "import"])
def test_help_imports_not_even_pydantic(command):
    assert modules_after(*command.split(), "--help").isdisjoint({*HEAVY, "pydantic"})


def test_jobs_of_this_machine_are_listed_without_pydantic_and_asyncio(here):
    assert modules_after("list", "--backend", "local").isdisjoint({*HEAVY, "pydantic", "asyncio"})


def test_doctor_begins_in_an_image_that_has_the_trainer_alone():
    assert modules_after("doctor", "--help").isdisjoint({*HEAVY, "pydantic", "msgspec", "yaml"})


@pytest.mark.parametrize(
    "command",
    [
        "render job.yaml",
        "validate job.yaml",
        "explain job.yaml",
        "schema",
        "instances",
        "init new.yaml --name a",
        "import torchrun torchrun t.py",
        "import accelerate acc.yaml",
        "import pytorchjob t.yaml",
        "export accelerate job.yaml",
        "render --template t.yaml",
        "submit --template t.yaml --dry-run client",
        "submit job.yaml --dry-run client",
        "estimate train.yaml",
    ],
)
def test_commands_around_a_spec_import_nothing_heavy(here, command):
    (here / "job.yaml").write_text("name: a\nimage: b\ncommand: c\n")
    (here / "t.yaml").write_text(MANIFEST)
    (here / "acc.yaml").write_text("num_processes: 1\n")
    (here / "train.yaml").write_text("name: a\nimage: b\ntrain: {model: tiny-llama, data: synthetic, max_steps: 5}\n")
    assert modules_after(*command.split()).isdisjoint(HEAVY)


def modules_of(imported: str) -> set[str]:
    """Return the modules that Python has after an import."""
    program = f"import sys, {imported}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split())


def test_what_a_submit_begins_with_has_no_http_client_of_its_own():
    modules = modules_of("kfjob.cli.submit, kfjob.api.jobs, kfjob.api.lifecycle.relaunch")
    assert modules.isdisjoint({*HEAVY, "urllib3"})


def test_supervisor_of_a_local_job_starts_without_pydantic():
    assert modules_of("kfjob.local.supervisor").isdisjoint({*HEAVY, "pydantic", "yaml"})


def test_importing_the_package_costs_nothing():
    assert [module for module in modules_of("kfjob") if module.startswith("kfjob")] == ["kfjob"]


def test_every_public_name_is_there():
    for name in dir(kfjob):
        assert getattr(kfjob, name) is not None


def test_every_line_of_the_stub_is_a_public_name():
    stub = Path(kfjob.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    names = [line.rpartition(" ")[2] for line in stub.splitlines()[1:]]
    assert sorted(names) == sorted(["aio", *dir(kfjob)])


def test_a_star_import_gets_every_public_name():
    names: dict[str, object] = {}
    exec("from kfjob import *", names)  # noqa: S102 - no function may contain such an import
    assert set(dir(kfjob)) <= set(names)
