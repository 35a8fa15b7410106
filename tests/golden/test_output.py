"""What commands print, against output/: stdout, then stderr, then the exit code."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfjob.api.target import Target
from kfjob.base.units import SECOND
from kfjob.cluster.backend import KubernetesBackend
from kfjob.cluster.client import Client
from kfjob.cluster.requests import Request
from kfjob.image import components
from kfjob.joblog.events import JobPhase, KubernetesEvent, PodPhase
from tests.fakes.backend import FakeBackend
from tests.fakes.transport import FakeStream, FakeTransport, refused, reply
from tests.unit.api import script
from tests.unit.api.conftest import Shell
from tests.unit.diagnose.cases import RECORDED
from tests.unit.doctor.test_cluster import JOBS, definition, deployment, node

OUTPUT = Path(__file__).parent / "output"
NOW = script.START + 90 * SECOND
LAUNCH = re.compile(r"\b\d{8}-\d{6}-[a-z0-9]{4}\b")
SPEC = """\
name: train
image: registry.test/train:1
nodes: 2
resources: {gpus: 8}
rendezvous: {backend: c10d, id: train}
command: torchrun train.py
"""
INVALID = "name: Train\nimage: a:1\nnodes: -2\ncolour: red\nresources: {gpu: 8}\ncommand: torchrun train.py\n"
SHORT = (
    *script.STARTING,
    *script.block(0, 1, 5),
    *script.block(1, 0, 5),
    *(script.progress(1, step, 8.0 - step / 10) for step in range(1, 4)),
    *script.SUCCEEDED[-3:],
)
RESTARTED = (*SHORT[:-3], script.pod(0, PodPhase.RUNNING, restarts=2, reason="CrashLoopBackOff", exit_code=137))
UNSCHEDULABLE = (
    script.STARTING[0],
    *(script.pod(index, PodPhase.PENDING, node="") for index in (0, 1)),
    KubernetesEvent(
        kind="Pod",
        name="train-worker-0",
        reason="FailedScheduling",
        message="0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
        warning=True,
        time=script.START + 2 * SECOND,
        uid="1",
        count=3,
    ),
)
JOBS_OF_THE_NAMESPACE = {
    "train": script.TRAINING,
    "done": SHORT,
    "broken": script.FAILED,
    "starting": script.STARTING,
    "restarted": RESTARTED,
    "unschedulable": UNSCHEDULABLE,
}


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fixed time, in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time_ns", lambda: NOW)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def check(kfjob: Shell, here: Path, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run commands and compare what they print with the golden file `name`."""
    check_golden = request.getfixturevalue("check_golden")

    def run(name: str, *commands: str) -> None:
        parts = []
        for command in commands:
            code = kfjob(*command.replace("RECORDED", str(RECORDED)).split())
            parts.append(f"$ kfjob {command}\n{kfjob.out}")
            parts.append(f"--- stderr\n{kfjob.err}" if kfjob.err else "")
            parts.append(f"--- exit code {code}\n\n")
        text = "".join(parts).replace(str(RECORDED), "RECORDED").replace(str(here), "HERE")
        check_golden(OUTPUT / f"{name}.txt", LAUNCH.sub("LAUNCH", text))

    return run


@pytest.fixture
def spec(here: Path) -> None:
    (here / "job.yaml").write_text(SPEC)
    (here / "invalid.yaml").write_text(INVALID)


@pytest.fixture
def jobs(fake: FakeBackend) -> FakeBackend:
    for name, events in JOBS_OF_THE_NAMESPACE.items():
        fake.play(name, *events, spec=script.SPEC)
    fake.play("foreign", *script.TRAINING)
    return fake


@pytest.fixture
def play(fake: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let whoever follows a job see exactly the events of this job, in their order."""
    monkeypatch.setattr("kfjob.cli.display.PROGRESS_EVERY", 0.0)

    def play(name: str) -> None:
        events = JOBS_OF_THE_NAMESPACE[name]
        monkeypatch.setattr("kfjob.api.lifecycle.wait.stream_events", lambda _backend, _ref, **_: iter(events))

    return play


def serve(monkeypatch: pytest.MonkeyPatch, **by_resource: object) -> None:
    """Open an API server with these objects; every right is granted, every other object is missing."""

    def answer(request: Request) -> FakeStream:
        if request.resource == "selfsubjectaccessreviews":
            return reply({"status": {"allowed": True}})
        body = by_resource.get(request.resource)
        if body is not None:
            return reply(body)
        if request.method == "GET" and not request.name:
            return reply({"items": []})
        if request.method == "POST":
            return reply({**(request.body or {}), "metadata": {**(request.body or {})["metadata"], "uid": "u"}})
        return refused(404, "NotFound", "not found", kind=request.resource)

    client = Client(FakeTransport(answer), host="test")
    monkeypatch.setattr(Target, "_open_cluster", lambda _target: KubernetesBackend(client))


def test_list(jobs, check):
    check("list", "list", "list -n empty")


def test_list_as_json(fake, check):
    fake.play("done", *SHORT)
    check("list-json", "list -o json")


def test_history(jobs, check):
    check("history", "history train", "history broken", "history train -o json", "history nothing")


def test_compare(jobs, check):
    check("compare", "compare train done", "compare train", "compare done restarted -o json")


def test_status(jobs, check):
    check(
        "status",
        "status train",
        "status starting",
        "status done",
        "status broken",
        "status restarted",
        "status unschedulable",
        "status train -o json",
    )


def test_master(jobs, check):
    check("master", "master train", "master starting", "master train -o name", "master train -o json", "master train --all")


def test_master_without_evidence(fake, check):
    fake.play("train", script.job(JobPhase.PENDING))
    check("master-no-evidence", "master train", "master train --all")


def test_master_of_recorded_logs(check):
    check(
        "master-recorded", "master --from RECORDED/2.15.0-c10d-store-host-dies", "master --from RECORDED/2.15.0-c10d-tee-logdir"
    )


def test_diagnose(jobs, check):
    names = ("broken", "done", "restarted", "unschedulable")
    check("diagnose", *(f"diagnose {name}" for name in names), "diagnose broken -o json", "diagnose done --warnings")


def test_diagnose_unknown_cause(fake, check):
    fake.play("train", *script.STARTING, script.job(JobPhase.FAILED, message="it failed"))
    check("diagnose-unknown-cause", "diagnose train")


def test_diagnose_of_recorded_logs(check):
    cases = ("2.15.0-c10d-store-host-dies", "2.15.0-c10d-tee-logdir")
    commands = (f"diagnose --from RECORDED/{case}{warnings}" for case in cases for warnings in ("", " --warnings"))
    check("diagnose-recorded", *commands)


def test_logs(jobs, check):
    options = (
        "--tail 2", "--master --tail 1", "--pod train-worker-1 --tail 1 --timestamps",
        "--include Batch.[34] --tail 1", "--tail 1 -o json", "--rank 0 --tail 1",
    )  # fmt: skip
    check("logs", *(f"logs train {option}" for option in options), "logs broken --first-error", "logs broken --failed")


def test_logs_usage_errors(jobs, check):
    options = (
        "--pod other", "--rank 7", "--rank x", "--failed", "--master --all", "--follow --previous", "--include (",
        "--since yesterday", "--first-error", "--first-error --tail 3",
    )  # fmt: skip
    check("logs-errors", *(f"logs train {option}" for option in options), "logs --from nowhere", "logs")


def test_watch(jobs, check, play):
    play("done")
    check("watch", "watch done")
    play("broken")
    check("watch-failed", "watch broken")
    play("restarted")
    check("watch-restarts", "watch restarted")


def test_watch_without_the_programs_output(jobs, check, play):
    play("done")
    check("watch-quiet", "watch done --quiet", "watch done -o json")


def test_wait(jobs, check):
    check("wait", "wait done", "wait broken")


def test_submit(fake, spec, check):
    check(
        "submit", "submit job.yaml", "submit job.yaml", "submit none.yaml", "submit invalid.yaml", "submit job.yaml --code-to a"
    )
    assert fake.calls == [("submit", "train")]


def test_submit_follow(fake, spec, check, play):
    play("done")
    check("submit-follow", "submit job.yaml --follow")


def test_submit_dry_run(fake, spec, check):
    check("submit-dry-run", "submit job.yaml --dry-run client", "submit job.yaml --dry-run client --strict")


def test_stop_and_relaunch(jobs, check):
    commands = ("stop train", "status train", "master train", "wait train", "watch train", "relaunch train", "relaunch foreign")
    check("stop-relaunch", *commands)
    assert jobs.calls == [("stop", "train"), ("submit", "train")]


def test_apply(fake, spec, check):
    check("apply", "apply job.yaml", "submit job.yaml", "apply job.yaml")


def test_render(fake, spec, check):
    check("render", "render job.yaml", "render invalid.yaml")


def test_validate(fake, spec, check):
    check("validate", "validate job.yaml", "validate invalid.yaml", "validate job.yaml --set nodes=x", "validate -o x")


def test_explain(fake, spec, check):
    check("explain", "explain job.yaml", "explain job.yaml --operator-env --node-rank 1", "explain job.yaml --node-rank 9")


def test_templates(fake, here, check):
    (here / "t.yaml").write_text("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: '${JOB}'}\nspec: {}\n")
    check("templates", "render --template t.yaml", "render --template t.yaml job.yaml", "render --template no.yaml")


def test_init(here, check):
    check(
        "init",
        "init --name demo --image a:1 --instance g5.12xlarge",
        "init --name other",
        "init x.yaml",
        "init x.yaml --name B",
    )
    check_file = (here / "job.yaml").read_text()
    assert "name: demo" in check_file


def test_instances(check):
    check("instances", "instances p4d", "instances p5.4 -o json", "instances nothing")


def test_import(check, here):
    (here / "job.yaml").write_text(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: train, annotations: {a: b}}\nspec:\n"
        "  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template: {spec: {containers: [{name: pytorch,"
        " image: a:1, command: [torchrun, train.py]}]}}\n"
    )
    torchrun = "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --tee 3 train.py"
    check("import", "import pytorchjob job.yaml", f"import torchrun --name train {torchrun}", "import torchrun python x.py")


def test_run(fake, here, check):
    (here / "fit.py").write_text("print(1)\n")
    command = "torchrun --nproc-per-node 2 --max-restarts 1 fit.py --epochs 3"
    start = "run -d --backend kubernetes --image a:1 --no-image-check"
    saved = f"run --save - --backend kubernetes --nodes 2 --memory 64Gi -e A=b -v data:/data -- {command}"
    check("run", saved, f"{start} --gpus 1 -- {command}", f"{start} --nodes 2 -- {command}", "run fit.py", "run -- torchrun")


def test_errors_of_the_command_line(fake, spec, check):
    commands = ("sbmit", "nothing", "submit", "submit job.yaml --folow", "status", "status nope", "stop nope", "relaunch nope")
    check(
        "errors",
        *commands,
        "wait nope",
        "watch nope",
        "master nope",
        "logs nope",
        "list --backend slurm",
        "submit job.yaml --builder docker",
    )


def test_doctor(here, check, monkeypatch):
    gpus = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4"}
    kind = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    serve(
        monkeypatch,
        apis=JOBS | {"resources": [*JOBS["resources"], {"name": "localqueues"}]},
        customresourcedefinitions=definition("managedBy"),
        deployments={"items": [deployment(1)]},
        nodes={"items": [node(labels=kind, **gpus)]},
        localqueues={"items": [{"metadata": {"name": "team"}}]},
    )
    check(
        "doctor",
        "doctor crd operator webhook rights nodes queues",
        "doctor nodes -o json",
        "doctor nodez",
        "doctor --require torch",
    )


def test_doctor_of_an_empty_cluster(here, check, monkeypatch):
    serve(monkeypatch, apis={"resources": []}, deployments={"items": []}, nodes={"items": []})
    check("doctor-empty-cluster", "doctor crd operator webhook nodes queues")


def test_doctor_in_an_image(here, check, monkeypatch):
    parts = [components.Component("python", "present", "3.11.2"), components.Component("torch", "missing", hint="TORCH=auto")]
    monkeypatch.setattr(components, "list_components", lambda: parts)
    commands = (
        "doctor --in-image",
        "doctor --in-image --require torch",
        "doctor --in-image nodes",
        "doctor --in-image --require x",
    )
    check("doctor-in-image", *commands)


def test_preflight(here, check, monkeypatch, spec):
    monkeypatch.setattr("kfjob.api.preflight.examine.check_images", lambda *_, **__: None)
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"},
    }
    nodes = [{"metadata": {"name": f"n{i}", "labels": {}}, "spec": {}, "status": status} for i in range(2)]
    serve(monkeypatch, apis=JOBS, nodes={"items": nodes})
    check(
        "preflight", "preflight job.yaml", "preflight job.yaml --set nodes=4 --set resources.gpus=16", "preflight invalid.yaml"
    )


def test_every_output_golden_has_a_test():
    source = Path(__file__).read_text(encoding="utf-8")
    assert {path.stem for path in OUTPUT.glob("*.txt")} == set(re.findall(r'check\(\s*"([^"]+)"', source))
