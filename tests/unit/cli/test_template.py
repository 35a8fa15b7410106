"""Manifest templates and dry runs on the command line."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
import yaml

from kfjob.api.recorded_config import from_manifest
from kfjob.base.errors import UsageError
from kfjob.joblog.observe_config import ObserveConfig, decode
from kfjob.kinds.launch_record import add_record, restore_objects
from kfjob.kinds.pod_changes import replace_image
from kfjob.objects import names

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
SPEC_MANIFEST = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: a}
spec:
  pytorchReplicaSpecs: {Worker: {template: {spec: {containers: [{name: pytorch, image: a:1}]}}}}
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
    assert kfjob.err.splitlines()[:4] == [
        "note: left for the pod: `$RANK` (nothing sets it without a Master; `--var` replaces it); `$OTHER` (no value)",
        "  --> t.yaml:21:38 (PyTorchJob `fsdp`, container `pytorch`, command[2])",
        "note: `${MORE}` stays in the text because of `--keep`: the shell in the pod replaces it",
        "  --> t.yaml:21:44 (PyTorchJob `fsdp`, container `pytorch`, command[2])",
    ]


def test_exported_variables_are_values_with_env_only(kfjob, template, monkeypatch):
    for name, value in {"NUM_NODES": "7", "IMAGE_URI": "1.dkr/x:1", "MORE": "", "RANK": "9", "OTHER": "exported"}.items():
        monkeypatch.setenv(name, value)
    assert kfjob("render", "--template", "t.yaml", "--keep", "MORE") == 2
    assert "`${NUM_NODES}` has no value" in kfjob.err
    assert kfjob("render", *template, "--env", "-o", "json") == 0
    _, job = json.loads(kfjob.out)["items"]
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 2  # of the env file
    assert worker["template"]["spec"]["containers"][0]["command"][2] == "train 9 ${MORE} exported"
    assert kfjob("render", "--template", "t.yaml", "--env") == 0
    assert "train 9  exported" in kfjob.out  # the empty value of MORE is a value


@pytest.mark.parametrize("only", [("--only", "NUM_NODES,IMAGE_URI,JOB"), ("--only", "$NUM_NODES ${IMAGE_URI}$JOB")])
def test_only_leaves_all_other_names(kfjob, template, only):
    assert kfjob("render", *template[:4], "--var", "MORE=1", *only, "-o", "json") == 0
    _, job = json.loads(kfjob.out)["items"]
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["template"]["spec"]["containers"][0]["command"][2] == "train $RANK ${MORE} $OTHER"
    assert "left for the pod" not in kfjob.err
    assert kfjob("render", *template[:4], "--only", "A=1") == 2
    assert "`--only` takes names" in kfjob.err


def test_environment_is_read_from_a_pipe(kfjob, template):
    reader, writer = os.pipe()
    os.write(writer, b"NUM_NODES=3\0IMAGE_URI=1.dkr/a:1\0MORE=two words\nand a line\0HOME=/root\0")
    os.close(writer)
    assert kfjob("render", "--template", "t.yaml", "--env-file", f"/dev/fd/{reader}", "-o", "json") == 0
    os.close(reader)
    _, job = json.loads(kfjob.out)["items"]
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["command"][2] == "train $RANK two words\nand a line $OTHER"


def test_env_fills_a_spec(kfjob, here, monkeypatch):
    (here / "job.yaml").write_text('name: train\nimage: ${IMAGE_URI}\ncommand: sh -c "x $IMAGE_URI ${RANK}"\n')
    monkeypatch.setenv("IMAGE_URI", "a:1")
    monkeypatch.setenv("RANK", "5")
    assert kfjob("validate", "job.yaml") == 2
    assert "export it and use `--env`" in kfjob.err
    assert kfjob("render", "job.yaml", "--env") == 0
    assert "x $IMAGE_URI ${RANK}" in kfjob.out
    assert "image: a:1" in kfjob.out


def test_submit_creates_the_job_first_and_makes_it_the_owner(cluster, kfjob, template):
    assert kfjob("submit", *template) == 0
    assert kfjob.out == "fsdp\n"
    created = [request[:3] for request in cluster.requests if request[0] == "POST"]
    assert created == [("POST", "pytorchjobs", "fsdp"), ("POST", "services", "etcd")]
    (owner,) = cluster.objects["default", "services", "etcd"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("PyTorchJob", "fsdp", "uid-fsdp")


def test_existing_objects_are_not_changed(cluster, kfjob, template):
    cluster.objects["default", "services", "etcd"] = {"metadata": {"name": "etcd"}}
    assert kfjob("submit", *template, "-o", "json") == 0
    assert json.loads(kfjob.out)["name"] == "fsdp"
    assert "Service `etcd` exists already; it was not changed" in kfjob.err
    assert "ownerReferences" not in cluster.objects["default", "services", "etcd"]["metadata"]


def test_taken_job_name_changes_nothing(cluster, kfjob, template):
    assert kfjob("submit", *template) == 0
    del cluster.objects["default", "services", "etcd"]
    assert kfjob("submit", *template) == 1
    assert "error: job `fsdp` exists already" in kfjob.err
    assert "`kfjob stop fsdp` archives its logs and removes it" in kfjob.err
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
    assert (result["name"], result["dry_run"], len(result["objects"])) == ("train", "client", 1)
    assert cluster.requests == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--template", "t.yaml", "job.yaml"), "SPEC cannot be used with `--template`"),
        (("--template", "t.yaml", "--set", "a=b"), "`--set` cannot be used with `--template`"),
        ((), "SPEC or `--template` is missing"),
        (("--template", "t.yaml", "--env-file", "no.env"), "env file `no.env` does not exist"),
        (("--template", "no.yaml"), "template `no.yaml` does not exist"),
        (("--template", "t.yaml", "--var", "é=1"), "variable is not in the form `NAME=VALUE`"),
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
        (
            TEMPLATE + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n",
            "hint: take it out of the template, and create it with kubectl",
        ),
        (
            TEMPLATE.replace("kubeflow.org/v1", "training.kubedl.io/v1alpha1"),
            "hint: `kfjob render --template t.yaml … | kfjob import pytorchjob -` makes a spec of the job in it",
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
    assert "`kfjob render --template … | kfjob import pytorchjob -` makes a spec, which can run here" in kfjob.err


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


def test_variable_that_is_not_utf_8_is_named(kfjob, here):
    (here / "job.yaml").write_text(SPEC)
    (here / "all").write_bytes(b"A=1\0BAD=x\xff\0C=2\0")
    assert kfjob("render", "job.yaml", "--env-file", "all") == 3
    assert "cannot read env file `all`: the value of `BAD` is not UTF-8\nhint: leave it out: `env -u BAD -0`" in kfjob.err


def test_list_in_a_value_has_a_hint(kfjob, template, here):
    (here / "t.yaml").write_text(TEMPLATE.replace("command: [sh", "args: ${ARGS}\n            command: [sh"))
    assert kfjob("render", *template, "--var", 'ARGS=["a","b"]') == 2
    assert ".args` must be a list\n" in kfjob.err
    assert "hint: a value never makes structure: write the list or mapping in the template" in kfjob.err


def test_templates_are_linted_like_specs(kfjob, cluster, template):
    several = TEMPLATE.replace('rdzvId: "${KFJOB_LAUNCH}"', 'rdzvId: "always-the-same", rdzvHost: shared')
    (Path("t.yaml")).write_text(several)
    assert kfjob("submit", *template) == 0
    assert "a relaunch meets the state of this launch under `always-the-same` [rendezvous-id-reused]" in kfjob.err
    assert "[loglevel-hides-agent]" in kfjob.err
    assert "[shared-store]" not in kfjob.err  # the agents are never restarted
    assert kfjob("submit", *template, "--strict", "--var", "JOB=other") == 2
    assert ("default", "pytorchjobs", "other") not in cluster.objects


def test_rendezvous_id_of_the_launch_is_not_reused(kfjob, cluster, template):
    """Its store is outside of the template, so an id of its own would meet the state of an earlier launch."""
    Path("t.yaml").write_text(TEMPLATE.replace("rdzvId:", "rdzvHost: shared, rdzvId:"))
    assert kfjob("submit", *template) == 0
    assert "rendezvous-id-reused" not in kfjob.err


def test_record_of_a_template_holds_all_objects_without_secret_values(kfjob, cluster, template):
    metadata = "{name: key, annotations: {last: very-secret}}"
    key = f"---\napiVersion: v1\nkind: Secret\nmetadata: {metadata}\nstringData: {{a: very-secret}}\n"
    Path("t.yaml").write_text(TEMPLATE.rstrip() + "\n" + key)
    assert kfjob("submit", *template) == 0
    job = cluster.objects["default", "pytorchjobs", "fsdp"]["metadata"]
    record = json.loads(job["annotations"]["kfjob.dev/manifest"])
    assert [manifest["kind"] for manifest in record] == ["Service", "PyTorchJob", "Secret"]
    assert "very-secret" not in json.dumps(job)
    with pytest.raises(UsageError, match="creates secret `key`"):
        restore_objects(
            job["annotations"]["kfjob.dev/manifest"], previous_launch=job["labels"]["kfjob.dev/launch"], launch="new"
        )


def test_relaunch_of_a_record_can_change_the_image(kfjob, cluster, template):
    assert kfjob("submit", *template) == 0
    metadata = cluster.objects["default", "pytorchjobs", "fsdp"]["metadata"]
    record, before = metadata["annotations"]["kfjob.dev/manifest"], metadata["labels"]["kfjob.dev/launch"]
    restored = restore_objects(record, previous_launch=before, launch="new")
    _, job = add_record(replace_image(restored, lambda old: f"{old}-and-code"), launch="new")
    for manifest in (job, json.loads(job["metadata"]["annotations"]["kfjob.dev/manifest"])[1]):
        (container,) = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        assert container["image"] == "1.dkr/fsdp:1-and-code"


@pytest.mark.parametrize(("images", "shown"), [(("a:1", "b:1"), "`a:1`, `b:1`"), (("a:1", ""), "`a:1`"), (("", ""), "none")])
def test_image_of_a_job_with_several_images_or_none_cannot_change(images, shown):
    master, worker = ({"template": {"spec": {"containers": [{"name": "pytorch", "image": image}]}}} for image in images)
    spec = {"pytorchReplicaSpecs": {"Master": master, "Worker": worker}}
    with pytest.raises(UsageError, match="cannot get another image") as caught:
        replace_image([{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": spec}], str)
    assert caught.value.cause == f"images of the training containers: {shown}"


def test_relaunch_of_a_record_changes_only_the_launch_id(kfjob, cluster, template):
    assert kfjob("submit", *template) == 0
    first = cluster.objects["default", "pytorchjobs", "fsdp"]
    launch = first["metadata"]["labels"]["kfjob.dev/launch"]
    record = first["metadata"]["annotations"]["kfjob.dev/manifest"]
    service, second = add_record(restore_objects(record, previous_launch=launch, launch="second"), launch="second")
    assert service["kind"] == "Service"
    assert second["spec"]["elasticPolicy"]["rdzvId"] == "second" == second["metadata"]["labels"]["kfjob.dev/launch"]
    for server_field in ("uid", "resourceVersion"):
        del first["metadata"][server_field]
    assert first["metadata"]["annotations"].pop("kfjob.dev/submitted-by")
    assert json.loads(json.dumps(second).replace("second", launch)) == first


JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: ${JOB:-llama}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: ${NUM_NODES}
      template:
        spec:
          containers:
          - name: pytorch
            image: ${IMAGE_URI}
            command: [torchrun, --nnodes=8, train.py]
"""


@pytest.fixture
def job(here):
    (here / "t.yaml").write_text(JOB)
    return ("--template", "t.yaml", "--var", "NUM_NODES=8", "--var", "IMAGE_URI=a/b:1")


@pytest.mark.parametrize("command", [("validate",), ("render",), ("submit", "--dry-run", "client"), ("apply",), ("submit",)])
def test_workers_without_a_rendezvous_are_an_error_at_their_line(kfjob, cluster, job, command):
    assert kfjob(*command, *job) == 2
    assert "error: no pod has a rendezvous address" in kfjob.err
    assert "--> t.yaml:9:17 (spec.pytorchReplicaSpecs.Worker.replicas)" in kfjob.err
    assert cluster.objects == {}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ("tolerations: [{key: bad key!, operator: Exists}]", ("`bad key!` is not a valid key", ":12:31")),
        ("tolerations: [{key: a, value: '${POOL}'}]", ("`${POOL}` is not a valid label value", ":12:41")),
        ("nodeSelector: {pool: '${POOL}'}", ("a reference stays in a field that no program in the pod reads", ":12:32")),
    ],
)
@pytest.mark.parametrize("command", [("validate",), ("submit",), ("preflight",), ("explain", "--operator-env")])
def test_value_that_no_spec_can_have_is_an_error_at_its_place(kfjob, job, command, fields, messages):
    Path("t.yaml").write_text(JOB.replace("          containers:", f"          {fields}\n          containers:"))
    keep = ("--keep", "POOL") if "POOL" in fields else ()
    assert kfjob(*command, *job, *keep) == 2
    assert f"error: {messages[0]}" in kfjob.err
    assert f"--> t.yaml{messages[1]}" in kfjob.err
    assert "is valid" not in kfjob.err


def test_ignored_rules_do_not_stop_a_submit(kfjob, cluster, job):
    assert kfjob("submit", *job, "--ignore", "no-rendezvous,short-grace,loglevel-hides-agent", "--ignore", "shared-memory") == 0
    assert "warning" not in kfjob.err
    assert kfjob("validate", *job, "--ignore", "no-rendez-vous") == 2
    assert "there is no lint rule `no-rendez-vous` to ignore" in kfjob.err
    assert "did you mean `no-rendezvous`?" in kfjob.err


def test_ignored_rules_hold_for_specs_too(kfjob, here):
    (here / "job.yaml").write_text(SPEC + "env: {LOGLEVEL: info}\n")
    assert kfjob("validate", "job.yaml", "--backend", "kubernetes") == 2
    assert kfjob("validate", "job.yaml", "--backend", "kubernetes", "--ignore", "loglevel-unknown") == 0


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("a/b:{TAG}", "`{TAG}` is not a tag"),
        ("account.dkr.ecr.us-west-2.amazonaws.com/fsdp:1", "`account` is not an AWS account of 12 digits"),
    ],
)
def test_image_placeholders_are_errors_in_every_object(kfjob, job, here, image, message):
    etcd = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: IMAGE}]}\n"
    (here / "t.yaml").write_text(JOB.replace("${IMAGE_URI}", f"'{image}'") + etcd)
    assert kfjob("validate", "--template", "t.yaml", "--var", "NUM_NODES=2") == 2
    assert message in kfjob.err
    assert "--> t.yaml:14:20 (spec.pytorchReplicaSpecs.Worker.template.spec.containers[pytorch].image)" in kfjob.err
    assert "--> t.yaml:20:38 (spec.containers[a].image)" in kfjob.err


@pytest.mark.parametrize("source", ["spec", "template"])
def test_render_warns_of_a_placeholder_and_submit_refuses_it(kfjob, cluster, here, source):
    spec = "name: a\nimage: registry.example.com/a:1\ncommand: [torchrun, t.py]\n"
    (here / "t.yaml").write_text(JOB if source == "template" else spec)
    options = ("--var", "NUM_NODES=2", "--var", "IMAGE_URI=registry.example.com/a:1")
    files = ("--template", "t.yaml", *options) if source == "template" else ("t.yaml",)
    assert kfjob("render", *files, "--ignore", "no-rendezvous") == 0
    assert "warning: image `registry.example.com/a:1` is a placeholder" in kfjob.err
    assert "registry.example.com/a:1" in kfjob.out
    assert kfjob("submit", *files, "--backend", "kubernetes") == 2
    assert "error: image `registry.example.com/a:1` is a placeholder" in kfjob.err


def test_commands_that_no_system_has_are_errors_in_every_object(kfjob, job, here):
    pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
    pod += "spec: {initContainers: [{name: a, image: b:1, command: [exec, fit]}]}\n"
    (here / "t.yaml").write_text(JOB.replace("${IMAGE_URI}", "a:1") + pod)
    assert kfjob("validate", "--template", "t.yaml", "--var", "NUM_NODES=2") == 2
    assert "the command needs a shell for `exec`, and runs without one" in kfjob.err
    assert "--> t.yaml:20:56 (spec.initContainers[a].command)" in kfjob.err
    assert 'hint: use `command: ["bash", "-c", "exec fit"]`' in kfjob.err


def test_lint_findings_name_the_container(kfjob, here):
    sidecar = "          - {name: log, image: b:latest}\n          - name: pytorch"
    probe = "            readinessProbe: {exec: {command: [ok]}}\n            resources: {limits: {nvidia.com/gpu: 8}}\n"
    text = JOB.replace("          - name: pytorch", sidecar).replace("            image", f"{probe}            image")
    text = text.replace("torchrun, --nnodes=8", "torchrun")
    (here / "t.yaml").write_text(text)
    variables = ("--var", "NUM_NODES=1", "--var", "IMAGE_URI=a:latest")
    assert kfjob("validate", "--template", "t.yaml", *variables) == 0
    container = "spec.pytorchReplicaSpecs.Worker.template.spec.containers"
    for rule, place in (
        ("`a:latest` is `latest` [latest-image]", f"t.yaml:17:20 ({container}[pytorch].image)"),
        ("`b:latest` is `latest` [latest-image]", f"t.yaml:13:32 ({container}[log].image)"),
        ("64 MiB of shared memory [shared-memory]", f"t.yaml:14:13 ({container}[pytorch])"),
        ("[readiness-gates-rendezvous]", f"t.yaml:15:29 ({container}[pytorch].readinessProbe)"),
    ):
        assert f"{rule}\n  --> {place}" in kfjob.err


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("${JOB:-llama}", "'{{ .Values.name }}'", 5),
        ("  name: ${JOB:-llama}", "  name: a\n  labels: '{{ include labels }}'", 6),
    ],
)
def test_quoted_text_of_helm_is_one_error(kfjob, here, old, new, line):
    (here / "t.yaml").write_text(JOB.replace(old, new).replace("${NUM_NODES}", "8").replace("${IMAGE_URI}", "a/b:1"))
    assert kfjob("validate", "--template", "t.yaml") == 2
    assert f"error: this is a template of Helm, Jinja or Go, not a manifest\n  --> t.yaml:{line}\n" in kfjob.err
    assert kfjob.err.count("error:") == 1


def test_text_of_helm_in_a_command_is_accepted(kfjob, here):
    text = JOB.replace("${NUM_NODES}", "1").replace("${IMAGE_URI}", "a/b:1").replace("--nnodes=8", "'{{.State}}'")
    (here / "t.yaml").write_text(text)
    assert kfjob("validate", "--template", "t.yaml") == 0


@pytest.mark.parametrize("option", [("--var", "NUMNODES=8"), ("--keep", "NUMNODES")])
def test_a_name_that_nothing_uses_may_be_misspelt(kfjob, template, option):
    assert kfjob("render", *template, *option) == 2
    assert f"`{option[0]} NUMNODES`: nothing uses `${{NUMNODES}}`" in kfjob.err
    assert "did you mean `NUM_NODES`?" in kfjob.err


@pytest.mark.parametrize("is_pipe", [False, True])
def test_an_env_file_uses_the_names_of_all_its_references(kfjob, here, is_pipe):
    (here / "t.yaml").write_text(TEMPLATE)
    text = "NUM_NODES=${OTHER:-$COUNT}\nIMAGE_URI=1.dkr/fsdp:1\n"
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    (here / "e").write_text(text)
    file = f"/dev/fd/{reader}" if is_pipe else "e"
    assert kfjob("render", "--template", "t.yaml", "--env-file", file, "--var", "COUNT=3", "--keep", "MORE") == 0
    os.close(reader)
    assert "replicas: 3" in kfjob.out


def test_problems_that_the_operator_would_report_are_all_reported(kfjob, job, here):
    (here / "t.yaml").write_text(JOB.replace("name: pytorch", "name: trainer").replace("replicas:", "replica:"))
    assert kfjob("validate", *job, "--var", "JOB=llama2_13b", "-o", "json") == 2
    problems = json.loads(kfjob.out)["problems"]
    assert [(problem["line"], problem["column"], problem["field"].rpartition(".")[2]) for problem in problems] == [
        (5, 9, "name"),
        (9, 7, "replica"),
        (13, 19, "name"),
    ]


def test_validate_tells_what_a_valid_template_makes(kfjob, template):
    assert kfjob("validate", *template, "--env") == 0
    assert "`t.yaml` is valid: PyTorchJob `fsdp`, replicas: Worker 2; with Service `etcd`" in kfjob.err


def test_all_template_files_are_one_manifest(kfjob, cluster, template, here):
    service, job = TEMPLATE.split("---")
    (here / "t.yaml").write_text(service)
    (here / "job.yaml").write_text(job)
    assert kfjob("submit", *template, "--template", "job.yaml", "-n", "team") == 0
    assert {key[1] for key in cluster.objects} == {"pytorchjobs", "services"}
    (here / "job.yaml").write_text(job.replace("name: pytorch", "name: trainer"))
    assert kfjob("validate", *template, "--template", "job.yaml") == 2
    assert "--> job.yaml:15:19" not in kfjob.err
    assert "--> job.yaml:14:19 (spec" in kfjob.err


def test_namespace_of_one_object_is_that_of_all(kfjob, cluster, template, here):
    text = TEMPLATE.replace("{name: etcd}", "{name: etcd, namespace: team}") + "            env: [{name: A, value: x}]\n"
    (here / "t.yaml").write_text(text.replace("value: x", "value: '${KFJOB_NAMESPACE}'"))
    assert kfjob("submit", *template, "-o", "json") == 0
    assert {key[0] for key in cluster.objects} == {"team"}
    assert json.loads(kfjob.out)["namespace"] == "team"
    job = cluster.objects["team", "pytorchjobs", "fsdp"]
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "A", "value": "team"}]
    (here / "t.yaml").write_text(text.replace("name: ${JOB", "namespace: more\n  name: ${JOB"))
    assert kfjob("validate", *template) == 2
    assert "all objects of a job need the same namespace, these have `team`, `more`\n  --> t.yaml:10:14" in kfjob.err


CLAIM = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"
CLAIM += "spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Ti}}}\n"


def test_volume_claims_stay_when_the_job_is_removed(kfjob, cluster, template, here):
    (here / "t.yaml").write_text(TEMPLATE.rstrip() + "\n" + CLAIM)
    assert kfjob("submit", *template, "--dry-run", "client") == 0
    assert "would be created with the job: Service `etcd`; `kfjob stop` removes them too" in kfjob.err
    assert "would be created with the job: PersistentVolumeClaim `data`; `kfjob stop` leaves volume claims" in kfjob.err
    assert kfjob("submit", *template) == 0
    assert "note: created with the job: Service `etcd`" in kfjob.err
    assert "ownerReferences" not in cluster.objects["default", "persistentvolumeclaims", "data"]["metadata"]
    cluster.objects.pop(("default", "pytorchjobs", "fsdp"))
    assert kfjob("submit", *template, "--dry-run", "server") == 0
    assert "PersistentVolumeClaim `data` exists already; it would not be changed" in kfjob.err


def test_label_of_another_tool_is_kept(kfjob, cluster, template, here):
    labels = "  labels: {app.kubernetes.io/managed-by: Helm}\n  name: ${JOB"
    (here / "t.yaml").write_text(TEMPLATE.replace("  name: ${JOB", labels))
    assert kfjob("submit", *template) == 0
    submitted = cluster.objects["default", "pytorchjobs", "fsdp"]["metadata"]["labels"]
    assert submitted["app.kubernetes.io/managed-by"] == "Helm"
    assert submitted["kfjob.dev/launch"]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("quay.io/coreos/etcd:v3.5.19", "the job's own etcd is `quay.io/coreos/etcd:v3.5.19`, and torch's"),
        ("quay.io/coreos/etcd:v3.4.13", ""),
        ("mirror/etcd@sha256:" + "0" * 64, "is `mirror/etcd@sha256:"),
    ],
)
def test_version_of_etcd_is_that_of_the_templates_own_deployment(kfjob, template, image, message):
    Path("t.yaml").write_text(add_etcd(image))
    assert kfjob("validate", *template) == 0
    assert ("[etcd-version]" in kfjob.err) == bool(message)
    assert message in kfjob.err
    assert "settings" not in kfjob.err


def add_etcd(image: str) -> str:
    """Return the template with a Deployment of etcd behind its service."""
    pods = "{metadata: {labels: {app: etcd}}, spec: {containers: [{name: etcd, image: 'IMAGE'}]}}".replace("IMAGE", image)
    spec = f"{{selector: {{matchLabels: {{app: etcd}}}}, template: {pods}}}"
    deployment = f"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: etcd}}\nspec: {spec}\n"
    text = TEMPLATE.replace("spec: {ports", "spec: {selector: {app: etcd}, ports")
    text = text.replace("rdzvBackend: etcd,", "rdzvBackend: etcd, rdzvHost: etcd,")
    return text.rstrip() + "\n" + deployment


def test_status_lists_the_etcd_of_the_template(cluster, kfjob, template):
    Path("t.yaml").write_text(add_etcd("quay.io/coreos/etcd:v3.4.37"))
    assert kfjob("submit", *template) == 0
    metadata = {"name": "etcd-5c8f-x2", "uid": "e", "labels": {"app": "etcd"}, "creationTimestamp": "2026-11-21T10:00:00Z"}
    waiting = {"name": "etcd", "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}}
    status = {"phase": "Pending", "containerStatuses": [waiting]}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "etcd"}]}, "status": status}
    cluster.objects["default", "pods", "etcd-5c8f-x2"] = pod
    assert kfjob("status", "fsdp") == 0
    assert "etcd-5c8f-x2   0/1     ErrImagePull" in kfjob.out
    cluster.objects["default", "pods", "etcd-5c8f-x2"]["metadata"]["ownerReferences"] = [{"kind": "PyTorchJob", "uid": "other"}]
    assert kfjob("status", "fsdp") == 0
    assert "etcd-5c8f-x2" not in kfjob.out


def test_file_without_a_job_is_rendered_and_not_submitted(kfjob, cluster, here, monkeypatch):
    monkeypatch.setenv("N", "3")
    text = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: x-}\nspec: {parallelism: $N}\n"
    (here / "data job.yaml").write_text(text + "---\napiVersion: a.b/v1\nkind: Other\nmetadata: {name: z}\n")
    assert kfjob("render", "--template", "data job.yaml", "--env") == 0
    first, second = yaml.safe_load_all(kfjob.out)
    assert first == {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "x-"}, "spec": {"parallelism": 3}}
    assert second == {"apiVersion": "a.b/v1", "kind": "Other", "metadata": {"name": "z"}}
    assert kfjob("render", "--template", "data job.yaml", "--env", "-n", "team") == 0
    assert [item["metadata"].get("namespace") for item in yaml.safe_load_all(kfjob.out)] == ["team", None]
    assert kfjob("render", "--template", "data job.yaml") == 2
    assert "`$N` has no value" in kfjob.err
    assert kfjob("submit", "--template", "data job.yaml", "--env") == 2
    assert "`data job.yaml` has no PyTorchJob: Job, Other" in kfjob.err
    assert "`kfjob render --template 'data job.yaml' --env | kubectl apply -f -` creates its objects" in kfjob.err


def test_object_that_holds_a_job_has_a_hint_to_import_it(kfjob, cluster, here):
    inner = SPEC_MANIFEST.replace("\n", "\n        ")
    workflow = f"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  text: |\n        {inner}\n"
    (here / "argo.yaml").write_text(workflow)
    for command in ("submit", "validate"):
        assert kfjob(command, "--template", "argo.yaml") == 2
        assert "has no PyTorchJob: Workflow" in kfjob.err
        assert "`kfjob import pytorchjob argo.yaml` makes a spec of the job" in kfjob.err


def test_progress_pattern_is_recorded_with_the_job(kfjob, cluster, template):
    pattern = r"it (?P<step>\d+) l (?P<loss>\S+)"
    assert kfjob("submit", *template, "--progress", pattern) == 0
    metadata = cluster.objects["default", "pytorchjobs", "fsdp"]["metadata"]
    config = decode(metadata["annotations"]["kfjob.dev/observe-config"], name_pods=partial(names.pod_names, "fsdp"))
    assert config == ObserveConfig(workers=("fsdp-worker-0", "fsdp-worker-1"), rendezvous="etcd", progress_pattern=pattern)
    launch = metadata["labels"]["kfjob.dev/launch"]
    _, again = restore_objects(metadata["annotations"]["kfjob.dev/manifest"], previous_launch=launch, launch="new")
    assert from_manifest(again) == config
    assert kfjob("submit", *template, "--progress", "it") == 2
    assert "`progress` has neither a group" in kfjob.err
    assert kfjob("submit", "job.yaml", "--progress", pattern) == 2
    assert "`--progress` needs `--template`" in kfjob.err


def test_explain_shows_the_origin_and_the_line_of_each_value(kfjob, template):
    assert kfjob("explain", *template, "-o", "json") == 0
    values = {value["path"]: value for value in json.loads(kfjob.out)}
    replicas = values["spec.pytorchReplicaSpecs.Worker.replicas"]
    assert (replicas["value"], replicas["origin"], replicas["location"]) == ("2", "variable", "t.yaml:15:17")
    assert replicas["reason"].endswith("value of `NUM_NODES`")
    assert values["Service etcd: spec.ports[0].port"]["origin"] == "template"
    assert values["metadata.namespace"]["origin"] == "kfjob"
    policy = values["spec.pytorchReplicaSpecs.Worker.restartPolicy"]
    assert (policy["value"], policy["origin"]) == ("OnFailure", "operator")


def test_explain_hides_secrets(kfjob, template):
    key = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: very-plain}\n"
    Path("t.yaml").write_text(TEMPLATE.rstrip() + "\n" + key)
    assert kfjob("explain", *template) == 0
    assert "very-plain" not in kfjob.out + kfjob.err


def test_explain_shows_what_the_operator_adds(kfjob, template, job):
    Path("t.yaml").write_text(TEMPLATE.replace("elasticPolicy:", "elasticPolicy: {}\n  x-old:").replace("  x-old", "  #"))
    assert kfjob("explain", *template, "--operator-env", "-o", "json") == 0
    env = json.loads(kfjob.out)
    assert (env["PET_NNODES"], env["PET_RDZV_BACKEND"]) == ("2:2", "c10d")
    assert not env.keys() & {"PET_RDZV_ID", "PET_MAX_RESTARTS"}  # the policy has neither
    Path("t.yaml").write_text(JOB)
    assert kfjob("explain", *job, "--operator-env", "-o", "json", "--node-rank", "7") == 0
    assert json.loads(kfjob.out) == {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto", "PET_NNODES": "8"}
    assert kfjob("explain", *job, "--operator-env", "--node-rank", "8") == 3


def test_preflight_checks_the_objects_of_a_template(kfjob, cluster, template):
    mounts = "            volumeMounts: [{name: v, mountPath: /v}]\n          volumes: [{name: v, configMap: {name: NAME}}]\n"
    config = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n"
    Path("t.yaml").write_text(TEMPLATE + mounts.replace("NAME", "own") + config)
    kfjob("preflight", *template)
    assert "`own` does not exist" not in kfjob.out
    assert "ok: the API server accepts Service `etcd`" in kfjob.out
    Path("t.yaml").write_text(TEMPLATE + mounts.replace("NAME", "missing") + config)
    assert kfjob("preflight", *template) == 1
    assert "config map `missing` does not exist" in kfjob.out
    assert "--> t.yaml:2" in kfjob.out
    assert all(dry for method, *_, dry in cluster.requests if method != "GET")


SHELL_TEXT = "torchrun train.py --batch ${BATCH:-8} --dir ${DATA_DIR} $NAME $${ESCAPED} ${A%x} ${A:-${B}} \\${C}"


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_shell_text_of_an_imported_job_is_that_of_the_manifest(kfjob, here, output):
    env = [{"name": "BATCH", "value": "64"}, {"name": "TEXT", "value": "${BATCH}"}]
    container = {"name": "pytorch", "image": "a:1", "command": ["bash", "-c", SHELL_TEXT], "env": env}
    worker = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"}}
    job["spec"] = {"elasticPolicy": {"rdzvBackend": "c10d"}, "pytorchReplicaSpecs": {"Worker": worker}}
    (here / "job.json").write_text(json.dumps(job))
    assert kfjob("import", "pytorchjob", "job.json", "-o", output) == 0
    spec = json.loads(kfjob.out)["spec"] if output == "json" else yaml.safe_load(kfjob.out)
    (here / "spec.yaml").write_text(json.dumps(spec))
    assert kfjob("render", "spec.yaml", "-o", "json", "--var", "BATCH=1", "--var", "C=1") == 0
    (job,) = json.loads(kfjob.out)["items"]
    rendered = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert rendered["command"] == ["bash", "-c", SHELL_TEXT]
    assert {"name": "TEXT", "value": "${BATCH}"} in rendered["env"]


def test_problem_of_an_alias_is_reported_once(kfjob, here):
    pod = "{spec: {containers: [{name: pytorch, image: a:1, imagePullPolicy: always}]}}"
    text = "kind: PyTorchJob\napiVersion: kubeflow.org/v1\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n"
    (here / "t.yaml").write_text(f"{text}    Master: &a {{template: {pod}}}\n    Worker: *a\n")
    assert kfjob("validate", "--template", "t.yaml") == 2
    assert kfjob.err.count("`imagePullPolicy` must be one of `Always`") == 1


RANKS = """
kind: PyTorchJob
apiVersion: kubeflow.org/v1
metadata: {name: a}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: ${WORLD_SIZE}
      template:
        spec:
          volumes: [{name: data, hostPath: {path: "${HOME}/data"}}]
          containers:
          - {name: pytorch, image: a:1, command: [sh, -c, "$HOME $MASTER_ADDR $RANK ${PYTHONUNBUFFERED} ${KUBERNETES_PORT}"]}
"""


@pytest.mark.parametrize("has_master", [False, True])
def test_exported_names_of_the_pod_are_replaced_where_nothing_sets_them(kfjob, here, monkeypatch, has_master):
    for name, value in {"WORLD_SIZE": "2", "HOME": "/home/me", "MASTER_ADDR": "head", "RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    master = "    Master: {template: {spec: {containers: [{name: pytorch, image: a:1}]}}}\n    Worker:"
    (here / "t.yaml").write_text(RANKS.replace("    Worker:", master) if has_master else RANKS)
    assert kfjob("render", "--template", "t.yaml", "--env", "--ignore", "no-rendezvous") == 0
    worker = yaml.safe_load(kfjob.out)["spec"]["pytorchReplicaSpecs"]["Worker"]
    pod = worker["template"]["spec"]
    assert (worker["replicas"], pod["volumes"][0]["hostPath"]["path"]) == (2, "/home/me/data")
    ranks = "$MASTER_ADDR $RANK" if has_master else "head 3"
    assert pod["containers"][0]["command"][2] == f"$HOME {ranks} ${{PYTHONUNBUFFERED}} ${{KUBERNETES_PORT}}"
    assert "(set by torchrun, the operator or the shell; `--var` replaces it)" in kfjob.err


def test_worker_without_replicas_is_left_out_beside_a_master(kfjob, here):
    master = "    Master: {template: {spec: {containers: [{name: pytorch, image: a:1}]}}}\n    Worker:"
    text = RANKS.replace("    Worker:", master).replace("${HOME}", "/home")
    (here / "t.yaml").write_text(text)
    assert kfjob("render", "--template", "t.yaml", "--var", "WORLD_SIZE=0") == 0
    assert list(yaml.safe_load(kfjob.out)["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    note = "note: a Worker without replicas is left out: operator 1.9 refuses it\n"
    assert kfjob.err.count(note + "  --> t.yaml:8:5 (spec.pytorchReplicaSpecs.Worker)") == 1
    (here / "t.yaml").write_text(text.replace("${WORLD_SIZE}", "0"))
    assert kfjob("import", "pytorchjob", "t.yaml") == 0
    assert yaml.safe_load(kfjob.out).get("nodes", 1) == 1
    assert "a Worker without replicas is left out: operator 1.9 refuses it" in kfjob.err


def test_secret_values_are_not_in_messages(kfjob, job, here):
    (here / "t.yaml").write_text(JOB.replace("metadata:", "metadata:\n  labels: {team: '${HF_TOKEN}'}"))
    value = "hf_abcdefgh SECRETijklmnop"
    assert (
        kfjob("validate", "--template", "t.yaml", "--var", f"HF_TOKEN={value}", "--var", f"IMAGE_URI={value}", *job[2:4]) == 2
    )
    assert "`[redacted]` is not a valid label value" in kfjob.err
    assert "SECRET" not in kfjob.err
    assert kfjob("validate", "--template", "t.yaml", "--var", "hf_abcdefghSECRET") == 2
    assert "--> --var hf_abc…" in kfjob.err


def test_import_of_a_job_in_a_template_with_values_is_a_pipe(kfjob, here):
    (here / "t.yaml").write_text(RANKS.replace("PyTorchJob", "HyperPodPyTorchJob"))
    assert kfjob("submit", "--template", "t.yaml", "--var", "WORLD_SIZE=2", "--var", "HOME=/home") == 2
    options = "--template t.yaml --var WORLD_SIZE=2 --var HOME=/home"
    assert f"`kfjob render {options} | kfjob import pytorchjob -` makes a spec of the job" in kfjob.err


def test_template_has_no_hint_about_the_local_backend(kfjob, here, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "missing")
    (here / "t.yaml").write_text(
        RANKS.replace("${WORLD_SIZE}", "2")
        .replace("${HOME}", "/home")
        .replace("[sh, -c,", "[sh, -c, torchrun --standalone a.py,")
    )
    assert kfjob("diff", "--template", "t.yaml", "--backend", "kubernetes") == 5
    assert "no kubeconfig" in kfjob.err
    assert "--backend local" not in kfjob.err


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ("terminationGracePeriodSeconds: -1", "note: a negative `terminationGracePeriodSeconds` is linted as 1"),
        ("tolerations: [{key: a, operator: Lt, value: '5'}]", "note: the toleration with `operator: Lt` is left out of the"),
        ("volumes: [{name: d}]", ""),
    ],
)
def test_value_that_runs_and_that_no_spec_can_have_is_a_note(kfjob, job, here, fields, note):
    (here / "t.yaml").write_text(JOB.replace("          containers:", f"          {fields}\n          containers:"))
    assert kfjob("validate", *job, "--ignore", "no-rendezvous") == 0
    assert note in kfjob.err
    assert "--> t.yaml:12:" in kfjob.err or not note
    assert "[short-grace]" in kfjob.err
