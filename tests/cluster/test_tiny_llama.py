"""The whole user path on the real cluster: the commands, the examples, the training image and the operator."""

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
class User:
    """A user with a shell, a kubeconfig and a namespace."""

    env: dict[str, str]
    state: Path
    space: Space

    def __call__(self, *argv: str, code: int = 0) -> str:
        result = subprocess.run([KFJOB, *argv], env=self.env, capture_output=True, text=True, timeout=300, check=False)
        assert result.returncode == code, f"kfjob {' '.join(argv)} -> {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def submit(self, example: str, *options: str, code: int = 0) -> str:
        """Submit an example of the project with this cluster's image and volumes."""
        facts = self.space.facts
        assignments = [f"image={facts.image}", *(f"volumes.{n}={json.dumps(dict(v))}" for n, v in enumerate(facts.volumes, 1))]
        if example == "tiny-llama.yaml":  # the claim's folder may have checkpoints of other test runs
            assignments.append(f"train.checkpoint_dir=/workspace/{self.space.name}")
        spec = str(ROOT / "examples" / example)
        return self("submit", spec, *(argument for a in assignments for argument in ("--set", a)), *options, code=code)


@pytest.fixture(scope="module")
def user(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    state = tmp_path_factory.mktemp("state")
    settings = {"KUBECONFIG": space.facts.kubeconfig, "KFJOB_NAMESPACE": space.name, "KFJOB_STATE": str(state)}
    env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")} | settings
    with shared_claim(space, "tiny-llama"):
        user = User(env, state, space)
        user.submit("tiny-text.yaml", "--follow")
        yield user


@pytest.mark.long  # test_llama2_eks trains a small Llama too
def test_tiny_llama_trains_and_master_names_the_right_pod(user):
    changes = ("--set", f"train.max_steps={STEPS}", "--set", "train.log_every=1")
    out = user.submit("tiny-llama.yaml", "--follow", "-o", "json", *changes)
    events = [json.loads(line) for line in out.splitlines()[1:]]
    losses = [value["loss"] for value in events if value["kind"] == "progress"]
    assert len(losses) == STEPS
    assert sum(losses[-10:]) / 10 < losses[0] - 1
    assert events[-1]["phase"] == "Succeeded"
    assert events[-1]["outcome"]["outcome"] == "finished"

    pods = ("tiny-llama-worker-0", "tiny-llama-worker-1")
    printers = [pod for pod in pods if "Batch 1 Loss" in user("logs", "tiny-llama", "--pod", pod)]
    assert user("master", "tiny-llama", "-o", "name").split() == [f"pod/{pod}" for pod in printers]
    assert "confirmed" in user("master", "tiny-llama")

    status = json.loads(user("status", "tiny-llama", "-o", "json"))
    assert status["phase"] == "Succeeded"
    assert [pod["phase"] for pod in status["pods"]] == ["Succeeded", "Succeeded"]
    assert status["progress"]["step"] == STEPS
    assert "tiny-llama" in user("list")
    points = re.findall(r'data-points="([^"]+)"', user("report", "tiny-llama", "-o", "-"))[0]
    assert [float(point[2]) for point in json.loads(html.unescape(points))["loss"]] == list(range(1, STEPS + 1))

    assert user("stop", "tiny-llama") == "tiny-llama\n"
    assert "tiny-llama" not in user("list")
    assert [json.loads(user("master", "tiny-llama", "-o", "json"))["pod"]] == printers  # from the archive


def test_a_completed_job_gives_its_name_to_the_next_submit(user, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", user.space.facts.kubeconfig)
    settings = Settings(state=user.state, namespace=user.space.name, backend="kubernetes")
    spec = JobSpec(name="again", image=user.space.facts.image, command=["true"])
    first = submit(spec, settings=settings)
    assert first.wait() is JobPhase.SUCCEEDED
    second = submit(spec, settings=settings)
    assert second.launch != first.launch
    assert second.wait() is JobPhase.SUCCEEDED
    assert [path.name for path in (user.state / "archive" / user.space.name / "again").iterdir()] == [first.launch]
    second.stop()


@pytest.mark.long  # test_sdk submits from Python in CI, and test_llama2_eks relaunches
def test_python_api_submits_and_relaunches(user, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", user.space.facts.kubeconfig)
    facts = user.space.facts
    spec = JobSpec.model_validate(
        {
            "name": "from-python",
            "image": facts.image,
            "nodes": 2,
            "volumes": [*facts.volumes, {"name": "programs", "config_map": "programs", "mount_path": "/programs"}],
            "command": ["torchrun", "/programs/reduce.py"],
        }
    )
    settings = Settings(backend="kubernetes", namespace=user.space.name, state=user.state)
    run = submit(spec, settings=settings)
    assert run.wait(timeout=120) is JobPhase.SUCCEEDED
    assert run.master().pod == "from-python-worker-0"
    relaunched = run.relaunch()
    assert relaunched.launch != run.launch
    relaunched.stop()
