"""The whole path on the real cluster, as a person walks it: the commands, the examples, the training image, the operator."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kfjob import JobPhase, JobSpec, submit
from kfjob.api.settings import Settings
from tests.cluster.facts import ROOT, Space
from tests.cluster.storage import shared_claim

KFJOB = str(Path(sys.executable).with_name("kfjob"))
STEPS = 60


@dataclass(frozen=True)
class Person:
    """Somebody with a shell, a kubeconfig and a namespace."""

    env: dict[str, str]
    state: Path
    space: Space

    def __call__(self, *argv: str, code: int = 0) -> str:
        done = subprocess.run([KFJOB, *argv], env=self.env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, f"kfjob {' '.join(argv)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def submit(self, example: str, *more: str, code: int = 0) -> str:
        """An example of the project with what this cluster needs: the image, and torch from the node."""
        facts = self.space.facts
        assignments = [f"image={facts.image}", *(f"volumes.{n}={json.dumps(dict(v))}" for n, v in enumerate(facts.volumes, 1))]
        if example == "tiny-llama.yaml":  # the claim is a folder that other runs of these tests have used
            assignments.append(f"train.checkpoint_dir=/workspace/{self.space.name}")
        spec = str(ROOT / "examples" / example)
        return self("submit", spec, *(word for a in assignments for word in ("--set", a)), *more, code=code)


@pytest.fixture(scope="module")
def person(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    state = tmp_path_factory.mktemp("state")
    settings = {"KUBECONFIG": space.facts.kubeconfig, "KFJOB_NAMESPACE": space.name, "KFJOB_STATE": str(state)}
    env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")} | settings
    with shared_claim(space, "tiny-llama"):
        person = Person(env, state, space)
        person.submit("tiny-text.yaml", "--follow")
        yield person


def test_the_tiny_llama_trains_and_the_right_pod_is_named(person):
    out = person.submit("tiny-llama.yaml", "--follow", "-o", "json", "--set", f"train.max_steps={STEPS}")
    said = [json.loads(line) for line in out.splitlines()[1:]]
    losses = [value["loss"] for value in said if value["kind"] == "progress"]
    assert len(losses) == STEPS
    assert sum(losses[-10:]) / 10 < losses[0] - 1
    assert said[-1]["phase"] == "Succeeded"
    assert said[-1]["outcome"]["outcome"] == "finished"

    pods = ("tiny-llama-worker-0", "tiny-llama-worker-1")
    printers = [pod for pod in pods if "Batch 1 Loss" in person("logs", "tiny-llama", "--pod", pod)]
    assert person("master", "tiny-llama", "-o", "name").split() == printers
    assert "confirmed" in person("master", "tiny-llama")

    status = json.loads(person("status", "tiny-llama", "-o", "json"))
    assert status["phase"] == "Succeeded"
    assert [pod["phase"] for pod in status["pods"]] == ["Succeeded", "Succeeded"]
    assert status["progress"]["step"] == STEPS
    assert "tiny-llama" in person("list")
    drawn = re.findall(r'data-points="([^"]+)"', person("report", "tiny-llama", "-o", "-"))[0]
    assert [float(point[2]) for point in json.loads(html.unescape(drawn))["loss"]] == list(range(1, STEPS + 1))

    person.submit("tiny-llama.yaml", code=1)  # the name is taken, by a Completed job too
    assert person("stop", "tiny-llama") == "tiny-llama\n"
    assert "tiny-llama" not in person("list")
    assert person("master", "tiny-llama", "-o", "name").split() == printers  # from the archive


def test_a_job_that_is_stopped_in_the_middle_goes_on_after_a_relaunch_and_finishes(person):
    folder, last = f"/workspace/{person.space.name}-stopped", 80
    changes = ("name=stopped", f"train.checkpoint_dir={folder}", f"train.max_steps={last}")
    person.submit("tiny-llama.yaml", *(word for change in changes for word in ("--set", change)))
    assert "stopped-worker-0" in person("master", "stopped", "--wait", "120")
    wait_for_step(person, "stopped", 5)
    person("relaunch", "stopped")
    person("wait", "stopped")  # or a code that is not 0
    log = person("logs", "stopped", "--master")
    (resumed,) = [line for line in log.splitlines() if "] Resume " in line]
    step = int(resumed.split("Resume step-")[1].split()[0])
    assert 5 <= step < last
    steps = [int(line.split("] Batch ")[1].split()[0]) for line in log.splitlines() if "] Batch " in line]
    assert steps == list(range(step + 1, last + 1))
    assert f"] Outcome finished step {last} " in log
    archived = sorted((person.state / "archive" / person.space.name / "stopped").iterdir())
    assert len(archived) == 1
    before = "".join(path.read_text() for path in archived[0].glob("stopped-worker-*/pytorch.log"))
    assert f"Checkpoint step-{step:06}" in before
    assert f"] Batch {step} Loss" in before
    assert f"] Batch {step + 1} Loss" not in before  # nothing was lost
    status = json.loads(person("status", "stopped", "-o", "json"))
    assert (status["phase"], status["progress"]["step"]) == ("Succeeded", last)
    person("stop", "stopped")


def wait_for_step(person: Person, job: str, step: int) -> None:
    process = subprocess.Popen([KFJOB, "watch", job, "-o", "json"], env=person.env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            value = json.loads(line)
            if value["kind"] == "progress" and value["step"] >= step:
                return
        pytest.fail(f"{job} ended before step {step}")
    finally:
        process.kill()
        process.communicate()


def test_python_does_the_same(person, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", person.space.facts.kubeconfig)
    facts = person.space.facts
    spec = JobSpec.model_validate(
        {
            "name": "from-python",
            "image": facts.image,
            "nodes": 2,
            "volumes": [*facts.volumes, {"name": "programs", "config_map": "programs", "mount_path": "/programs"}],
            "command": ["torchrun", "/programs/reduce.py"],
        }
    )
    settings = Settings(backend="kubernetes", namespace=person.space.name, state=person.state)
    run = submit(spec, settings=settings)
    assert run.wait(timeout=120) is JobPhase.SUCCEEDED
    assert run.master().pod == "from-python-worker-0"
    again = run.relaunch()
    assert again.launch != run.launch
    again.stop()
