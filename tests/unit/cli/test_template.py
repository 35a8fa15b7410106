"""Templates at the command line, and dry runs."""

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


def test_render_prints_the_objects_and_says_what_stays(kfjob, template):
    assert kfjob("render", *template, "-n", "team") == 0
    service, job = yaml.safe_load_all(kfjob.out)
    assert service["metadata"] == {"namespace": "team", "name": "etcd"}
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 2
    (container,) = worker["template"]["spec"]["containers"]
    assert container["command"][2] == "train $RANK ${MORE} $OTHER"
    assert job["spec"]["elasticPolicy"]["rdzvId"]
    assert kfjob.err.startswith("note: `$OTHER` stays as it is: no value was given\n")


def test_a_variable_is_put_over_the_env_file(kfjob, template):
    assert kfjob("render", *template, "--var", "NUM_NODES=5", "--var", "JOB=other", "-o", "json") == 0
    _, job = json.loads(kfjob.out)
    assert job["metadata"]["name"] == "other"
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 5


def test_what_is_missing_is_one_error(kfjob, template):
    assert kfjob("render", "--template", "t.yaml", "--var", "IMAGE_URI=") == 2
    assert kfjob.out == ""
    assert kfjob.err.count("error: ") == 3
    assert "--> t.yaml:15:17" in kfjob.err
    assert "`${IMAGE_URI}` has an empty value" in kfjob.err


def test_submit_creates_the_job_first_and_makes_it_the_owner(cluster, kfjob, template):
    assert kfjob("submit", *template) == 0
    assert kfjob.out == "fsdp\n"
    assert [one[:3] for one in cluster.asked] == [("POST", "pytorchjobs", "fsdp"), ("POST", "services", "etcd")]
    (owner,) = cluster.kept["default", "services", "etcd"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("PyTorchJob", "fsdp", "uid-fsdp")


def test_what_is_there_already_is_left_alone(cluster, kfjob, template):
    cluster.kept["default", "services", "etcd"] = {"metadata": {"name": "etcd"}}
    assert kfjob("submit", *template, "-o", "json") == 0
    assert json.loads(kfjob.out)["job"] == "fsdp"
    assert "Service `etcd` is there already and is left as it is" in kfjob.err
    assert "ownerReferences" not in cluster.kept["default", "services", "etcd"]["metadata"]


def test_a_name_that_is_taken_changes_nothing(cluster, kfjob, template):
    assert kfjob("submit", *template) == 0
    del cluster.kept["default", "services", "etcd"]
    assert kfjob("submit", *template) == 1
    assert "there is a job `fsdp` in namespace `default` already" in kfjob.err
    assert ("default", "services", "etcd") not in cluster.kept


@pytest.mark.parametrize("how", [("--template", "t.yaml", "--env-file", ".env", "--keep", "MORE"), ("job.yaml",)])
def test_a_dry_run_by_the_server_keeps_nothing(cluster, kfjob, template, here, how):
    (here / "job.yaml").write_text(SPEC)
    assert kfjob("submit", *how, "--dry-run", "server") == 0
    assert kfjob.out in ("fsdp\n", "train\n")
    assert "would be taken by the API server; nothing was created" in kfjob.err
    assert cluster.kept == {}
    assert all(dry for *_, dry in cluster.asked)
    cluster.refusal = "denied"
    assert kfjob("submit", *how, "--dry-run", "server") == 1
    assert "refused to create" in kfjob.err


def test_a_dry_run_here_asks_nobody(cluster, kfjob, here):
    (here / "job.yaml").write_text(SPEC)
    assert kfjob("submit", "job.yaml", "--dry-run", "client", "-o", "json") == 0
    said = json.loads(kfjob.out)
    assert (said["job"], said["dry_run"], len(said["objects"])) == ("train", "client", 1)
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("--template", "t.yaml", "job.yaml"), "SPEC cannot be used with `--template`"),
        (("--template", "t.yaml", "--set", "a=b"), "`--set` cannot be used with `--template`"),
        ((), "SPEC or `--template` is missing"),
        (("--template", "t.yaml", "--env-file", "no.env"), "env file `no.env` does not exist"),
        (("--template", "no.yaml"), "template `no.yaml` does not exist"),
        (("--template", "t.yaml", "--var", "A"), "variable is not in the form `NAME=VALUE`"),
    ],
)
def test_flags_that_do_not_fit(kfjob, template, argv, why):
    assert kfjob("render", *argv) in (2, 3)
    assert f"error: {why}" in kfjob.err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "this has 0: Pod"),
        (
            TEMPLATE + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n",
            "Namespace `x` is of a kind that kfjob does not",
        ),
        (TEMPLATE.replace("{name: etcd}", "{name: etcd, namespace: other}"), "`default` was asked for"),
    ],
)
def test_objects_that_make_no_job(kfjob, template, here, text, why):
    (here / "t.yaml").write_text(text)
    assert kfjob("render", *template, "-n", "default") == 2
    assert why in kfjob.err


def test_a_template_needs_a_cluster(kfjob, template):
    assert kfjob("submit", *template, "--backend", "local") == 2
    assert "this needs a cluster" in kfjob.err


def test_an_env_file_feeds_a_spec_too(kfjob, here):
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


def test_a_template_is_linted_as_the_spec_that_it_would_come_from(kfjob, cluster, template):
    several = TEMPLATE.replace('rdzvId: "${KFJOB_LAUNCH}"', 'rdzvId: "always-the-same", rdzvHost: shared')
    (Path("t.yaml")).write_text(several)
    assert kfjob("submit", *template) == 0
    assert "a relaunch meets the state of this launch under `always-the-same` [rendezvous-id-reused]" in kfjob.err
    assert "[loglevel-hides-agent]" in kfjob.err
    assert "[shared-store]" not in kfjob.err  # the agents are never restarted
    assert kfjob("submit", *template, "--strict", "--var", "JOB=other") == 2
    assert ("default", "pytorchjobs", "other") not in cluster.kept


def test_a_template_job_is_recorded_whole_and_without_its_secrets(kfjob, cluster, template):
    key = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: very-secret}\n"
    Path("t.yaml").write_text(TEMPLATE.rstrip() + "\n" + key)
    assert kfjob("submit", *template) == 0
    metadata = cluster.kept["default", "pytorchjobs", "fsdp"]["metadata"]
    record = json.loads(metadata["annotations"]["kfjob.dev/manifest"])
    assert [one["kind"] for one in record] == ["Service", "PyTorchJob", "Secret"]
    assert "very-secret" not in json.dumps(metadata)
    with pytest.raises(UsageError, match="creates secret `key`"):
        restore_objects(
            metadata["annotations"]["kfjob.dev/manifest"], previous_launch=metadata["labels"]["kfjob.dev/launch"], launch="new"
        )


def test_another_launch_of_a_record_with_another_image(kfjob, cluster, template):
    assert kfjob("submit", *template) == 0
    metadata = cluster.kept["default", "pytorchjobs", "fsdp"]["metadata"]
    record, before = metadata["annotations"]["kfjob.dev/manifest"], metadata["labels"]["kfjob.dev/launch"]
    _, job = restore_objects(record, previous_launch=before, launch="new", image=lambda old: f"{old}-and-code")
    for one in (job, json.loads(job["metadata"]["annotations"]["kfjob.dev/manifest"])[1]):
        (container,) = one["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        assert container["image"] == "1.dkr/fsdp:1-and-code"


def test_another_launch_of_a_record_differs_by_its_id_alone(kfjob, cluster, template):
    assert kfjob("submit", *template) == 0
    first = cluster.kept["default", "pytorchjobs", "fsdp"]
    launch = first["metadata"]["labels"]["kfjob.dev/launch"]
    service, second = restore_objects(
        first["metadata"]["annotations"]["kfjob.dev/manifest"], previous_launch=launch, launch="second"
    )
    assert service["kind"] == "Service"
    assert second["spec"]["elasticPolicy"]["rdzvId"] == "second" == second["metadata"]["labels"]["kfjob.dev/launch"]
    for given_by_the_server in ("uid", "resourceVersion"):
        del first["metadata"][given_by_the_server]
    assert json.loads(json.dumps(second).replace("second", launch)) == first
