"""The guard on a real cluster, with the rights that `kfjob guard install` gives it and nobody who follows the job."""

from __future__ import annotations

import json
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.local.machine import free_port
from tests.cluster.facts import Space, script, until
from tests.cluster.guarded import (
    Guard,
    Start,
    delete_pod,
    is_relaunching,
    list_guard_events,
    list_pods,
    read_job,
    read_launch_id,
    read_relaunches,
    running_job,
)
from tests.cluster.shell import Shell
from tests.mock_s3 import MockS3
from tests.receiver import Receiver


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_deleted_pod_is_relaunched_from_the_newest_checkpoint_notified_and_counted(
    space: Space, name: str, start_guard: Start, tmp_path: Path
):
    port = free_port()
    labels = f'job="{name}",namespace="{space.name}"'
    with Receiver() as receiver:
        address = f"json://me:swordfish@127.0.0.1:{receiver.port}"
        guard = start_guard("--metrics-port", str(port), KFJOB_NOTIFY=address)
        kfjob = Shell(space, tmp_path)
        with running_job(space, name, kfjob, recovery={"retries": 2}):
            until(lambda: f"kfjob_job_step{{{labels}}}" in scrape(port))
            assert f'kfjob_job_phase{{{labels},phase="Running"}} 1.0' in scrape(port)
            check_relaunch_after_a_deleted_pod(space, name, guard, kfjob)
            until(lambda: f"kfjob_job_relaunches{{{labels}}} 1.0" in scrape(port))
            kfjob("stop", name)
            until(lambda: labels not in scrape(port))
    assert [entry["title"] for entry in receiver.received] == [f"relaunch of job {name} in namespace {space.name}"]
    assert f"pod `{name}-worker-0` was removed from the job" in receiver.received[0]["message"]
    assert "swordfish" not in guard.log.read_text()


def check_relaunch_after_a_deleted_pod(space: Space, name: str, guard: Guard, kfjob: Shell) -> None:
    old = read_job(space, name)["metadata"]
    until(lambda: guard.says(f"{name}: supervises launch"))
    with (kfjob.folder / "job.yaml").open("a") as spec:
        spec.write("watchdog: {deadline: 5000}\n")
    kfjob("apply", "job.yaml")
    delete_pod(space, f"{name}-worker-0")
    until(lambda: guard.says(f"replaces {old['labels']['kfjob.dev/launch']}"))
    new = read_job(space, name)
    assert '"deadline":5000' in new["metadata"]["annotations"]["kfjob.dev/spec"]  # changed since it was supervised
    (entry,) = read_relaunches(new)
    assert entry["launch"] == old["labels"]["kfjob.dev/launch"]
    assert entry["progress"] >= 10
    assert new["metadata"]["annotations"]["kfjob.dev/submitted-by"] == old["annotations"]["kfjob.dev/submitted-by"]
    kfjob("wait", name, "--for", "progress", "--timeout", "120")
    assert "Resume step-" in kfjob("logs", name, "--pod", f"{name}-worker-0")
    ((reason, message),) = list_guard_events(space, name)
    assert reason == "Relaunching"
    assert f"pod `{name}-worker-0` was removed from the job" in message
    assert "Killing" in message or "Terminating" in message  # the kubelet's event may come later
    assert f"{name}: Running, 1 relaunch; pod `{name}-worker-0`" in kfjob("guard", "status")
    assert f"1 relaunch, the last after step {entry['step']}: pod `{name}-worker-0`" in kfjob("status", name)
    archived = kfjob.folder / "guard-state" / "archive" / space.name / name / entry["launch"] / f"{name}-worker-0"
    lines = (archived / "pytorch.log").read_text().splitlines()  # of a pod that was gone when the job had failed
    steps = [int(line.split()[2]) for line in lines if " step " in line]
    assert len(steps) >= entry["step"]
    assert steps == list(range(1, len(steps) + 1))


def test_same_exception_at_the_same_step_twice_stops_the_job(space: Space, name: str, start_guard: Start, tmp_path: Path):
    kfjob, guard = Shell(space, tmp_path), start_guard()
    with running_job(space, name, kfjob, recovery={}, env={"FAIL_AT": "17"}):
        message = kfjob("wait", name, code=100)  # through the relaunch
        assert f"the guard has relaunched `{name}`" in message
        assert "ValueError: bad batch 17" in message
        until(lambda: guard.says("deleted 1 pod that still ran after the failure"))
        assert guard.says("stop: the same failure ended two launches after step 17")
        until(lambda: "kfjob.dev/guard-decision" in read_job(space, name)["metadata"]["annotations"])
        job = read_job(space, name)
        assert len(read_relaunches(job)) == 1
        until(lambda: list_pods(space, name) == [f"{name}-worker-0"])
        reasons = [reason for reason, _ in list_guard_events(space, name)]
        assert sorted(reasons) == ["RelaunchStopped", "Relaunching"]
        assert "ValueError: bad batch 17" in kfjob("diagnose", name, "-o", "json", code=0)
        guard.end(signal.SIGTERM)
        other = start_guard()  # starts at once, and does not decide again
        until(lambda: other.says("guards namespace"))
        assert not other.says(f"{name}: supervises")
        kfjob("stop", name)


def bind_token(space: Space, secret: str) -> str:
    """Return a token of the guard that is valid while this Secret, which is created, exists."""
    script("kubectl", "-n", space.name, "create", "secret", "generic", secret)
    bound = ("--bound-object-kind", "Secret", "--bound-object-name", secret)
    return script("kubectl", "-n", space.name, "create", "token", "kfjob-guard", *bound)


@pytest.mark.long  # unit/cluster/test_renewal.py renews tokens over HTTP, of a plugin and of a service account
def test_guard_goes_on_with_a_new_token_when_its_own_is_not_valid_any_more(
    space: Space, name: str, start_guard: Start, guard_kubeconfig: Path, tmp_path: Path
):
    token, plugin, config = tmp_path / "token", tmp_path / "plugin", yaml.safe_load(guard_kubeconfig.read_text())
    token.write_text(bind_token(space, "first"))
    api_version = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": api_version, "kind": "ExecCredential", "status": {"token": "%s"}})
    plugin.write_text(f"#!/bin/sh\necho run >>{tmp_path}/runs\nprintf '{answer}' \"$(cat {token})\"\n")
    plugin.chmod(0o755)
    login = {"apiVersion": api_version, "command": str(plugin), "interactiveMode": "Never"}
    config["users"] = [{"name": user["name"], "user": {"exec": login}} for user in config["users"]]
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    kfjob, guard = Shell(space, tmp_path), start_guard(KUBECONFIG=str(tmp_path / "kubeconfig"))
    with running_job(space, name, kfjob, recovery={}):
        until(lambda: guard.says(f"{name}: supervises launch"))
        runs = len((tmp_path / "runs").read_text().split())
        token.write_text(bind_token(space, "second"))
        script("kubectl", "-n", space.name, "delete", "secret", "first")
        until(lambda: len((tmp_path / "runs").read_text().split()) > runs)
        delete_pod(space, f"{name}-worker-0")
        until(lambda: guard.says(f"{name}: launch "))
        kfjob("wait", name, "--for", "progress", "--timeout", "120")
        kfjob("stop", name)
    assert "Unauthorized" not in guard.log.read_text()


SHORT_LEASE = """
from kfjob.guard import lease
lease.DURATION_SECONDS, lease.GIVE_UP_SECONDS, lease.RENEW_SECONDS = 7, 4.0, 1.0
"""


def test_guard_killed_in_the_middle_of_a_relaunch_leaves_one_new_launch(
    space: Space, name: str, start_guard: Start, tmp_path: Path
):
    kfjob, guard = Shell(space, tmp_path), start_guard(setup=SHORT_LEASE)
    with running_job(space, name, kfjob, recovery={}, env={"IGNORE_SIGTERM": ""}):  # so that the relaunch takes longer
        until(lambda: guard.says(f"{name}: supervises launch"))
        delete_pod(space, f"{name}-worker-0")
        until(lambda: is_relaunching(space, name))
        guard.end(signal.SIGKILL)
        other, third = start_guard(setup=SHORT_LEASE), start_guard(setup=SHORT_LEASE)
        until(lambda: not is_relaunching(space, name))
        until(lambda: other.says(f"{name}: supervises launch") or third.says(f"{name}: supervises launch"))
        assert len(read_relaunches(read_job(space, name))) == 1
        assert [reason for reason, _ in list_guard_events(space, name)] == ["Relaunching"]
        logs = other.log.read_text() + third.log.read_text()
        assert logs.count(f"{name}: supervises launch") == 1
        assert logs.count("completes a relaunch that another guard has begun") == 1
        kfjob("stop", name)


def test_command_that_follows_frees_the_survivors(space: Space, name: str, tmp_path: Path):
    kfjob = Shell(space, tmp_path)
    with running_job(space, name, kfjob, env={"FAIL_AT": "17"}):
        message = kfjob("wait", name, code=100)
        assert f"deleted 1 pod that still ran after the failure: `{name}-worker-1`" in message
        until(lambda: list_pods(space, name) == [f"{name}-worker-0"])
        assert "ValueError: bad batch 17" in kfjob("diagnose", name)
        kfjob("stop", name)


@pytest.fixture
def mock_s3() -> Iterator[MockS3]:
    server = MockS3()
    yield server
    server.stop()


def read_verdict(diagnosis: dict[str, Any], pod: str) -> tuple[Any, ...]:
    """Return what does not depend on the place of the logs, or on the other pod: the guard deletes it, the archive keeps it."""
    cause = {key: value for key, value in diagnosis["cause"].items() if key != "remedy"}
    return diagnosis["headline"], cause, [issue["rule"] for issue in diagnosis["consequences"] if issue["pod"] in {"", pod}]


def list_keys(bucket: Any) -> list[str]:
    return [item["Key"] for item in bucket.list_objects_v2(Bucket="logs").get("Contents", ())]


RETRY_SOON = "from kfjob.guard import uploads; uploads.RETRY_SECONDS = 3.0"


def test_archive_in_s3_gives_another_machine_the_verdict_and_all_lines(
    space: Space, name: str, start_guard: Start, tmp_path: Path, mock_s3: MockS3
):
    kfjob, guard = Shell(space, tmp_path), start_guard(setup=RETRY_SOON, KFJOB_ARCHIVE="s3://logs/guard", **mock_s3.environment)
    pod, prefix, bucket = f"{name}-worker-0", f"guard/{space.name}/{name}", mock_s3.make_client()
    bucket.create_bucket(Bucket="logs")
    with running_job(space, name, kfjob, recovery={"retries": 1}, env={"FAIL_AT": "60"}):
        until(lambda: guard.says(f"{name}: supervises launch"))
        first = read_launch_id(space, name)
        delete_pod(space, pod)
        until(lambda: guard.says(f"replaces {first}"))
        until(lambda: f"{prefix}/{first}/events.json" in list_keys(bucket))
        mock_s3.stop()  # two launches fail while S3 does not answer
        until(lambda: guard.says("deleted 1 pod that still ran after the failure"))
        until(lambda: guard.says("the guard tries again: AWS does not answer"))
        until(lambda: list_pods(space, name) == [pod])
        last = read_launch_id(space, name)
        verdict, lines = json.loads(kfjob("diagnose", name, "-o", "json")), kfjob("logs", name, "--pod", pod)
        mock_s3.start()
        until(lambda: guard.says("the archive is copied to s3://logs/guard again"))
        kfjob("stop", name)
    guard.end(signal.SIGTERM)
    shutil.rmtree(tmp_path / "guard-state")
    env = {"KUBECONFIG": str(tmp_path / "none"), "KFJOB_STATE": str(tmp_path / "other"), **mock_s3.environment}
    other, address = Shell(space, tmp_path, env=env), f"s3://logs/{prefix}"
    archived = json.loads(other("diagnose", "--from", f"{address}/{last}", "-o", "json"))
    assert "ValueError: bad batch 60" in json.dumps(verdict)
    assert read_verdict(archived, pod) == read_verdict(verdict, pod)
    assert other("logs", "--from", f"{address}/{last}", "--pod", pod) == lines
    shown = other("logs", "--from", f"{address}/{first}", "--pod", pod).splitlines()
    steps = [int(line.split()[1]) for line in shown if line.startswith("step ")]
    assert len(steps) >= 10
    assert steps == list(range(1, len(steps) + 1))
    elsewhere = Shell(space, tmp_path, env=env | {"KFJOB_ARCHIVE": "s3://logs/guard"})
    launches = [launch["launch"] for launch in json.loads(elsewhere("history", name, "-o", "json"))]
    assert (launches[0], len(launches), launches[-1]) == (first, 3, last)
    assert elsewhere("logs", name, "--pod", pod) == lines
