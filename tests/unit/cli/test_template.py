"""Manifest templates and dry runs on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from kfjob.compile.launch_record import restore_objects
from kfjob.errors import UsageError

TEMPLATE = """
apiVersion: v1
kind: Service
metadata: {name: etcd}
spec: {ports: [{port: 2379}]}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: ${JOB:-fsdp}
spec:
  elasticPolicy: {rdzvBackend: etcd, rdzvId: "${KFJOB_LAUNCH}"}
  pytorchReplicaSpecs:
    Worker:
      replicas: ${NUM_NODES}
      template:
        spec:
          containers:
          - name: pytorch
            image: ${IMAGE_URI}
            command: [sh, -c, "train $RANK ${MORE} $OTHER"]
"""
SPEC = "name: train\nimage: a:1\nnodes: 2\ncommand: torchrun train.py\n"


@pytest.fixture
def template(here):
    (here / "t.yaml").write_text(TEMPLATE)
    (here / ".env").write_text("export NUM_NODES=2\nIMAGE_URI=1.dkr/fsdp:1\n")
    return ("--template", "t.yaml", "--env-file", ".env", "--keep", "MORE")


def test_render_prints_the_objects_and_notes_variables_without_a_value(kfjob, template):
    assert kfjob("render", *template, "-n", "team") == 0
    service, job = yaml.safe_load_all(kfjob.out)
    assert service["metadata"] == {"namespace": "team", "name": "etcd"}
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 2
    (container,) = worker["template"]["spec"]["containers"]
    assert container["command"][2] == "train $RANK ${MORE} $OTHER"
    assert job["spec"]["elasticPolicy"]["rdzvId"]
    assert kfjob.err.startswith("note: `$OTHER` is left unchanged, because it has no value\n")


def test_variables_override_the_env_file(kfjob, template):
    assert kfjob("render", *template, "--var", "NUM_NODES=5", "--var", "JOB=other", "-o", "json") == 0
    _, job = json.loads(kfjob.out)["items"]
    assert job["metadata"]["name"] == "other"
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 5


def test_exported_variables_are_values_with_env_only(kfjob, template, monkeypatch):
    for name, value in {"NUM_NODES": "7", "IMAGE_URI": "1.dkr/x:1", "MORE": "", "RANK": "9", "OTHER": "exported"}.items():
        monkeypatch.setenv(name, value)
    assert kfjob("render", "--template", "t.yaml", "--keep", "MORE") == 2
    assert "`${NUM_NODES}` has no value" in kfjob.err
    assert kfjob("render", *template, "--env", "-o", "json") == 0
    _, job = json.loads(kfjob.out)["items"]
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 2  # of the env file
    assert worker["template"]["spec"]["containers"][0]["command"][2] == "train $RANK ${MORE} exported"
    assert kfjob("render", "--template", "t.yaml", "--env") == 2
    assert "`${MORE}` has an empty value" in kfjob.err


def test_env_fills_a_spec(kfjob, here, monkeypatch):
    (here / "job.yaml").write_text('name: train\nimage: ${IMAGE_URI}\ncommand: sh -c "x $IMAGE_URI ${RANK}"\n')
    monkeypatch.setenv("IMAGE_URI", "a:1")
    monkeypatch.setenv("RANK", "5")
    assert kfjob("validate", "job.yaml") == 2
    assert "export it and use `--env`" in kfjob.err
    assert kfjob("render", "job.yaml", "--env") == 0
    assert "x $IMAGE_URI ${RANK}" in kfjob.out
    assert "image: a:1" in kfjob.out


def test_every_missing_value_is_reported(kfjob, template):
    assert kfjob("render", "--template", "t.yaml", "--var", "IMAGE_URI=") == 2
    assert kfjob.out == ""
    assert kfjob.err.count("error: ") == 3
    assert "--> t.yaml:15:17" in kfjob.err
    assert "`${IMAGE_URI}` has an empty value" in kfjob.err


def test_submit_creates_the_job_first_and_makes_it_the_owner(cluster, kfjob, template):
    assert kfjob("submit", *template) == 0
    assert kfjob.out == "fsdp\n"
    assert [request[:3] for request in cluster.requests] == [("POST", "pytorchjobs", "fsdp"), ("POST", "services", "etcd")]
    (owner,) = cluster.objects["default", "services", "etcd"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("PyTorchJob", "fsdp", "uid-fsdp")


def test_existing_objects_are_not_changed(cluster, kfjob, template):
    cluster.objects["default", "services", "etcd"] = {"metadata": {"name": "etcd"}}
    assert kfjob("submit", *template, "-o", "json") == 0
    assert json.loads(kfjob.out)["job"] == "fsdp"
    assert "Service `etcd` exists already; it was not changed" in kfjob.err
    assert "ownerReferences" not in cluster.objects["default", "services", "etcd"]["metadata"]


def test_taken_job_name_changes_nothing(cluster, kfjob, template):
    assert kfjob("submit", *template) == 0
    del cluster.objects["default", "services", "etcd"]
    assert kfjob("submit", *template) == 1
    assert "there is a job `fsdp` in namespace `default` already" in kfjob.err
    assert ("default", "services", "etcd") not in cluster.objects


@pytest.mark.parametrize("source", [("--template", "t.yaml", "--env-file", ".env", "--keep", "MORE"), ("job.yaml",)])
def test_server_dry_run_creates_nothing(cluster, kfjob, template, here, source):
    (here / "job.yaml").write_text(SPEC)
    assert kfjob("submit", *source, "--dry-run", "server") == 0
    assert kfjob.out in ("fsdp\n", "train\n")
    assert "would be accepted by the API server; nothing was created" in kfjob.err
    assert cluster.objects == {}
    assert all(dry for *_, dry in cluster.requests)
    cluster.refusal = "denied"
    assert kfjob("submit", *source, "--dry-run", "server") == 1
    assert "refused to create" in kfjob.err


def test_client_dry_run_sends_no_request(cluster, kfjob, here):
    (here / "job.yaml").write_text(SPEC)
    assert kfjob("submit", "job.yaml", "--dry-run", "client", "-o", "json") == 0
    result = json.loads(kfjob.out)
    assert (result["job"], result["dry_run"], len(result["objects"])) == ("train", "client", 1)
    assert cluster.requests == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--template", "t.yaml", "job.yaml"), "SPEC cannot be used with `--template`"),
        (("--template", "t.yaml", "--set", "a=b"), "`--set` cannot be used with `--template`"),
        ((), "SPEC or `--template` is missing"),
        (("--template", "t.yaml", "--env-file", "no.env"), "env file `no.env` does not exist"),
        (("--template", "no.yaml"), "template `no.yaml` does not exist"),
        (("--template", "t.yaml", "--var", "A"), "variable is not in the form `NAME=VALUE`"),
    ],
)
def test_contradicting_options_are_usage_errors(kfjob, template, argv, message):
    assert kfjob("render", *argv) in (2, 3)
    assert f"error: {message}" in kfjob.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TEMPLATE + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n",
            "kfjob cannot create Namespace `x`",
        ),
        (TEMPLATE.replace("{name: etcd}", "{name: etcd, namespace: other}"), "the selected namespace is `default`"),
    ],
)
def test_templates_must_make_exactly_one_job(kfjob, template, here, text, message):
    (here / "t.yaml").write_text(text)
    assert kfjob("render", *template, "-n", "default") == 2
    assert message in kfjob.err


def test_a_template_needs_a_cluster(kfjob, template):
    assert kfjob("submit", *template, "--backend", "local") == 2
    assert "this needs a cluster" in kfjob.err


def test_env_file_and_variables_fill_a_spec(kfjob, here):
    (here / "job.yaml").write_text('name: ${NAME:-train}\nimage: ${IMAGE_URI}\nnodes: ${N}\ncommand: sh -c "x $RANK"\n')
    (here / ".env").write_text("IMAGE_URI=a:1\nN=2\n")
    assert kfjob("render", "job.yaml", "--env-file", ".env", "--var", "N=3") == 0
    job = yaml.safe_load(kfjob.out)
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert (job["metadata"]["name"], worker["replicas"]) == ("train", 3)
    assert worker["template"]["spec"]["containers"][0]["command"] == ["sh", "-c", "x $RANK"]
    assert kfjob("validate", "job.yaml", "--var", "N=") == 2
    assert "--> job.yaml:2:8" in kfjob.err
    assert "`${N}` has an empty value" in kfjob.err


def test_templates_are_linted_like_specs(kfjob, cluster, template):
    several = TEMPLATE.replace('rdzvId: "${KFJOB_LAUNCH}"', 'rdzvId: "always-the-same", rdzvHost: shared')
    (Path("t.yaml")).write_text(several)
    assert kfjob("submit", *template) == 0
    assert "a relaunch meets the state of this launch under `always-the-same` [rendezvous-id-reused]" in kfjob.err
    assert "[loglevel-hides-agent]" in kfjob.err
    assert "[shared-store]" not in kfjob.err  # the agents are never restarted
    assert kfjob("submit", *template, "--strict", "--var", "JOB=other") == 2
    assert ("default", "pytorchjobs", "other") not in cluster.objects


def test_record_of_a_template_holds_all_objects_without_secret_values(kfjob, cluster, template):
    key = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: very-secret}\n"
    Path("t.yaml").write_text(TEMPLATE.rstrip() + "\n" + key)
    assert kfjob("submit", *template) == 0
    metadata = cluster.objects["default", "pytorchjobs", "fsdp"]["metadata"]
    record = json.loads(metadata["annotations"]["kfjob.dev/manifest"])
    assert [manifest["kind"] for manifest in record] == ["Service", "PyTorchJob", "Secret"]
    assert "very-secret" not in json.dumps(metadata)
    with pytest.raises(UsageError, match="creates secret `key`"):
        restore_objects(
            metadata["annotations"]["kfjob.dev/manifest"], previous_launch=metadata["labels"]["kfjob.dev/launch"], launch="new"
        )


def test_relaunch_of_a_record_can_change_the_image(kfjob, cluster, template):
    assert kfjob("submit", *template) == 0
    metadata = cluster.objects["default", "pytorchjobs", "fsdp"]["metadata"]
    record, before = metadata["annotations"]["kfjob.dev/manifest"], metadata["labels"]["kfjob.dev/launch"]
    _, job = restore_objects(record, previous_launch=before, launch="new", image=lambda old: f"{old}-and-code")
    for manifest in (job, json.loads(job["metadata"]["annotations"]["kfjob.dev/manifest"])[1]):
        (container,) = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        assert container["image"] == "1.dkr/fsdp:1-and-code"


def test_relaunch_of_a_record_changes_only_the_launch_id(kfjob, cluster, template):
    assert kfjob("submit", *template) == 0
    first = cluster.objects["default", "pytorchjobs", "fsdp"]
    launch = first["metadata"]["labels"]["kfjob.dev/launch"]
    service, second = restore_objects(
        first["metadata"]["annotations"]["kfjob.dev/manifest"], previous_launch=launch, launch="second"
    )
    assert service["kind"] == "Service"
    assert second["spec"]["elasticPolicy"]["rdzvId"] == "second" == second["metadata"]["labels"]["kfjob.dev/launch"]
    for server_field in ("uid", "resourceVersion"):
        del first["metadata"][server_field]
    assert json.loads(json.dumps(second).replace("second", launch)) == first
