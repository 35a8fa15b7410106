"""PyTorchJobs inside other objects, in older forms, and without a name of their own."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
import yaml

from kfjob.api.specs.imports import import_manifest
from kfjob.base.errors import SpecError
from kfjob.convert.conversion import Conversion
from kfjob.kinds.manifests import JobChoice
from kfjob.spec.job import JobSpec
from kfjob.spec.scheduling import HyperPod

CONTAINER = {"name": "pytorch", "image": "team/train:3", "command": ["torchrun", "t.py"]}
JOB: Any = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "inner"},
    "spec": {
        "pytorchReplicaSpecs": {
            kind: {
                "replicas": 1,
                "restartPolicy": "Never",
                "template": {
                    "spec": {"containers": [{"name": "pytorch", "image": "team/train:3", "command": ["torchrun", "t.py"]}]}
                },
            }
            for kind in ("Master", "Worker")
        }
    },
}
WITHOUT_METADATA = {key: value for key, value in JOB.items() if key != "metadata"}


def convert(*documents: Any, **choice: Any) -> Conversion:
    return import_manifest(yaml.safe_dump_all(documents), file="job.yaml", choice=JobChoice(**choice))


def notes_of(conversion):
    return {note.item: note.reason for note in conversion.notes}


@pytest.mark.parametrize(
    ("holder", "path"),
    [
        ({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "spec": {"components": [{"template": JOB}]}},
         "spec.components.0.template"),
        ({"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "spec": {"trialTemplate": {"trialSpec": JOB}}},
         "spec.trialTemplate.trialSpec"),
        ({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
          "spec": {"templates": [{"name": "a"}, {"resource": {"action": "create", "manifest": yaml.safe_dump(JOB)}}]}},
         "spec.templates.1.resource.manifest"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "data": {"job.yaml": yaml.safe_dump(JOB)}}, "data.job.yaml"),
        ({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"any": {"thing": [JOB]}}}, "spec.any.thing.0"),
    ],
    ids=["AppWrapper", "Katib", "Argo", "ConfigMap", "another"],
)  # fmt: skip
def test_a_job_inside_another_object_is_found_with_its_path(holder, path):
    conversion = convert(holder | {"metadata": {"name": "outer"}})
    assert JobSpec.model_validate(conversion.spec).name == "inner"
    assert notes_of(conversion)[f"{holder['kind']} outer"] == f"only the PyTorchJob in it is converted, which is at `{path}`"


@pytest.mark.parametrize(
    ("metadata", "name", "item"),
    [
        ({"metadata": {"generateName": "sweep-"}}, "sweep", "metadata.generateName: sweep-"),
        ({}, "outer", "metadata.name"),
    ],
)
def test_a_job_without_a_name_gets_one(metadata, name, item):
    holder = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": "outer"}}
    conversion = convert(holder | {"spec": {"trialSpec": WITHOUT_METADATA | metadata}})
    assert conversion.spec["name"] == name
    assert f"`{name}`" in notes_of(conversion)[item]


def test_places_that_are_filled_later_are_named():
    text = yaml.safe_dump(JOB).replace("t.py", "'--lr=${trialParameters.lr} --out={{workflow.name}}'")
    conversion = import_manifest(text)
    assert "${trialParameters.lr}, {{workflow.name}}" in notes_of(conversion)


def test_null_metadata_is_like_none_at_all():
    holder = {"apiVersion": "w/v1", "kind": "AppWrapper", "metadata": {"name": "outer"}}
    assert convert(holder | {"spec": {"inner": JOB | {"metadata": None}}}).spec["name"] == "outer"


@pytest.mark.parametrize("metadata", [["a"], "a", {"name": 5}, {"name": "inner", "labels": ["a"]}])
@pytest.mark.parametrize("kind", ["PyTorchJob", "HyperPodPyTorchJob"])
def test_metadata_of_another_shape_is_a_problem(metadata, kind):
    inner = JOB | {"kind": kind, "metadata": metadata}
    with pytest.raises(SpecError) as caught:
        convert({"apiVersion": "w/v1", "kind": "AppWrapper", "metadata": {"name": "outer"}, "spec": {"inner": inner}})
    (problem,) = caught.value.problems
    assert "metadata" in problem.title
    assert (problem.file, problem.path.startswith("spec.inner")) == ("job.yaml", True)


@pytest.mark.parametrize("field", ["spec", "runPolicy", "replicaSpecs", "pod", "containers", "annotations"])
@pytest.mark.parametrize("version", ["sagemaker.amazonaws.com/v1", "kubeflow.org/v1beta2"])
@pytest.mark.parametrize("value", [None, 5, "text", ["a"], {"a": 1}])
def test_an_older_form_of_another_shape_is_a_problem_or_is_read(field, version, value):
    pod = {"spec": {"containers": [CONTAINER]}}
    spec = {"runPolicy": {"jobMaxRetryCount": 2}, "cleanPodPolicy": "All", "replicaSpecs": [{"replicas": 1, "template": pod}]}
    job: Any = {"metadata": {"name": "inner"}, "spec": spec, "apiVersion": version}
    job["kind"] = "HyperPodPyTorchJob" if "amazon" in version else "PyTorchJob"
    holders = {"spec": job, "pod": pod, "containers": pod["spec"], "annotations": job["metadata"]}
    holders.get(field, spec)["spec" if field == "pod" else field] = value
    with suppress(SpecError):
        JobSpec.model_validate(convert(job).spec)


@pytest.mark.parametrize("amount", ["1.0", "1k", "2000m", 2])
def test_a_number_of_another_form_stays_as_it_is(amount):
    container = CONTAINER | {"resources": {"limits": {"nvidia.com/gpu": amount}}}
    job = JOB | {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}}
    spec = JobSpec.model_validate(convert(job).spec)
    assert (spec.resources.gpus, spec.resources.limits) == ((2, {}) if amount == 2 else (0, {"nvidia.com/gpu": amount}))


def test_an_empty_namespace_around_the_job_is_none():
    holder = {"apiVersion": "v1", "kind": "Holder", "metadata": {"name": "a", "namespace": ""}, "spec": {"job": JOB}}
    assert "namespace" not in convert(holder).spec.get("overrides", {}).get("metadata", {})


def test_several_jobs_are_chosen_by_name():
    other = JOB | {"metadata": {"name": "second"}}
    with pytest.raises(SpecError) as caught:
        convert(JOB, other)
    (problem,) = caught.value.problems
    assert problem.title == "this file has 2 PyTorchJobs"
    assert problem.detail == "`inner`, `second`"
    assert problem.hint == "choose one: `--name inner`"
    assert convert(JOB, other, name="second").spec["name"] == "second"


def test_jobs_of_a_list_are_chosen_by_their_path():
    items = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJobList", "items": [JOB, JOB | {"metadata": {"name": "second"}}]}
    with pytest.raises(SpecError) as caught:
        import_manifest(json.dumps(items), choice=JobChoice(path="items.7"))
    (problem,) = caught.value.problems
    assert problem.detail == "`inner` at `items.0`, `second` at `items.1`"
    assert problem.hint == "choose one: `--name inner` or `--at items.0`"
    assert import_manifest(json.dumps(items), choice=JobChoice(path="items.1")).spec["name"] == "second"


def test_several_jobs_of_one_name_are_chosen_by_path():
    holder = {"apiVersion": "v1", "kind": "Bundle", "metadata": {"name": "b"}, "spec": {"jobs": [JOB, JOB]}}
    with pytest.raises(SpecError) as caught:
        convert(holder)
    assert caught.value.problems[0].hint == "choose one: `--at spec.jobs.0`"
    assert convert(holder, path="spec.jobs.1").spec["name"] == "inner"


def test_a_choice_that_fits_nothing_lists_what_there_is():
    with pytest.raises(SpecError) as caught:
        convert(JOB, name="third")
    (problem,) = caught.value.problems
    assert problem.title == "this file has 1 PyTorchJob, and none of them fits the choice"
    assert problem.detail == "`inner`"


def test_a_file_without_a_job_says_what_it_has():
    with pytest.raises(SpecError) as caught:
        convert({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}})
    (problem,) = caught.value.problems
    assert (problem.title, problem.detail) == ("this file has no PyTorchJob", "it has: Service")


def test_job_without_a_spec_is_named():
    with pytest.raises(SpecError) as caught:
        convert(JOB | {"spec": None})
    assert caught.value.problems[0].title == "the PyTorchJob has no `spec`"


@pytest.mark.parametrize("version", ["kubeflow.org/v3", "kubeflow.org/v2beta1", "training.kubedl.io/v1"])
def test_unknown_version_is_an_error(version):
    with pytest.raises(SpecError, match=f"there is no PyTorchJob of the version `{version}`"):
        convert(JOB | {"apiVersion": version})


@pytest.mark.parametrize("text", ["\U0001f600", "a\\\U0001f600b", "\\ud83d\\ude00"])
def test_json_may_have_surrogate_pairs(text):
    job = copy.deepcopy(JOB)
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["env"] = [{"name": "NOTE", "value": text}]
    assert import_manifest(json.dumps(job)).spec["env"]["NOTE"] == text


@pytest.mark.parametrize("version", ["kubeflow.org/v1beta1", "kubeflow.org/v1beta2", "training.kubedl.io/v1alpha1"])
def test_older_versions_are_read_as_v1(version):
    old = JOB | {"apiVersion": version, "spec": JOB["spec"] | {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 60}}
    conversion = convert(old)
    assert conversion.spec["run"] == {"clean_pods": "All", "ttl": 60}
    assert notes_of(conversion)[f"apiVersion: {version}"].startswith("read as kubeflow.org/v1")


def test_replicas_as_a_list_are_read():
    template = JOB["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    replicas = [
        {"replicaType": kind, "replicas": count, "template": template} for kind, count in (("MASTER", 1), ("WORKER", 3))
    ]
    conversion = convert(JOB | {"apiVersion": "kubeflow.org/v1alpha2", "spec": {"replicaSpecs": replicas}})
    assert conversion.spec["nodes"] == 4


HYPERPOD = {"apiVersion": "sagemaker.amazonaws.com/v1", "kind": "HyperPodPyTorchJob", "metadata": {"name": "big"}}


def test_every_other_field_of_a_hyperpod_group_has_a_note():
    group = {"name": "pods", "replicas": 2, "spares": 1, "maxReplicas": 4, "other": {"a": 1}}
    pod = {"containers": [CONTAINER | {"name": "train"}]}
    conversion = convert(HYPERPOD | {"spec": {"replicaSpecs": [group | {"template": {"spec": pod}}]}})
    assert {note.item for note in conversion.notes if "replicaSpecs" in note.item} == {
        'spec.replicaSpecs[pods].name: "pods"',
        "spec.replicaSpecs[pods].spares: 1",
        "spec.replicaSpecs[pods].maxReplicas: 4",
        'spec.replicaSpecs[pods].other: {"a": 1}',
        "spec.replicaSpecs[pods].template.spec.containers[train].name: train",
    }


@pytest.mark.parametrize("kind", ["HyperPodPyTorchJob", "PyTorchJob"])
def test_a_problem_in_an_older_form_has_the_path_of_the_file(kind):
    group = {"replicaType": "WORKER", "replicas": 2, "template": {"spec": {"containers": [{"name": "pytorch", "image": ""}]}}}
    version = "sagemaker.amazonaws.com/v1" if kind == "HyperPodPyTorchJob" else "kubeflow.org/v1alpha2"
    job = {"apiVersion": version, "kind": kind, "metadata": {"name": "big"}, "spec": {"replicaSpecs": [group]}}
    text = yaml.safe_dump(job)
    with pytest.raises(SpecError) as caught:
        import_manifest(text, file="job.yaml")
    (problem,) = caught.value.problems
    assert problem.path.startswith("spec.replicaSpecs[0].template.spec.containers[pytorch]")
    assert "image: ''" in text.splitlines()[(problem.line or 0) - 1]


def test_a_hyperpod_job_becomes_a_pytorchjob():
    pod = {"containers": [{"name": "train", "image": "team/train:3", "command": ["hyperpodrun", "t.py"]}]}
    spec = {
        "nprocPerNode": "8",
        "runPolicy": {"cleanPodPolicy": "All", "jobMaxRetryCount": 5, "logMonitoringConfiguration": [{"name": "start"}]},
        "replicaSpecs": [{"name": "pods", "replicas": 16, "template": {"spec": pod}}, {"name": "spare", "replicas": 1}],
    }
    conversion = convert(HYPERPOD | {"spec": spec})
    read = JobSpec.model_validate(conversion.spec)
    assert (read.nodes, read.processes_per_node, read.run.clean_pods) == (16, 8, "All")
    assert read.scheduling.hyperpod == HyperPod(auto_resume=True, max_retries=5, healthy_nodes=False)
    named = {"kind: HyperPodPyTorchJob", "hyperpodrun", "spec.replicaSpecs[spare]", "spec.runPolicy.logMonitoringConfiguration"}
    assert named <= set(notes_of(conversion))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("kind: PyTorchJob\nmetadata: {name: {{ .Values.name }}}\n", "Helm"),
        ("{% for i in n %}\nkind: PyTorchJob\n{% endfor %}", "Jinja"),
        (yaml.safe_dump(JOB).replace("replicas: 1", "replicas: $NUM_NODES"), "with variables"),
        (yaml.safe_dump(JOB).replace("name: inner", "name: ${NAME}").replace("Policy: Never", "Policy: 3"), "with variables"),
        (yaml.safe_dump(JOB).replace("image: team", "image: ${REGISTRY}"), "with variables"),
        (yaml.safe_dump(JOB).replace("containers:", "nodeSelector: {a: '${ZONE}'}\n          containers:"), "with variables"),
    ],
)  # fmt: skip
def test_templates_are_told_from_manifests(text, language):
    with pytest.raises(SpecError) as caught:
        import_manifest(text, file="job.yaml")
    (problem,) = caught.value.problems
    assert language in problem.title
    assert problem.line
    assert problem.hint


def test_a_faulty_manifest_whose_program_reads_variables_is_no_template():
    text = yaml.safe_dump(JOB).replace("replicas: 1", "replicas: one").replace("t.py", "'$HOME/t.py'")
    with pytest.raises(SpecError) as caught:
        import_manifest(text)
    assert all("template" not in problem.title for problem in caught.value.problems)


ETCD: Any = (
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "meet"}, "spec": {"selector": {"app": "e"}}},
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "server"},
        "spec": {"template": {"metadata": {"labels": {"app": "e"}}, "spec": {"containers": [{"image": "team/etcd:v3.4.13"}]}}},
    },
)


def elastic(host):
    policy = {"rdzvBackend": "etcd", "rdzvHost": host, "rdzvPort": 2379, "minReplicas": 1, "maxReplicas": 1}
    return JOB | {
        "spec": {"elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": JOB["spec"]["pytorchReplicaSpecs"]["Worker"]}}
    }


def test_the_etcd_of_the_same_file_becomes_the_jobs_own():
    conversion = convert(*ETCD, elastic("meet.team"))
    assert conversion.spec["rendezvous"] == {"backend": "etcd"}
    assert "`rendezvous: etcd` makes an etcd" in notes_of(conversion)["Service meet, Deployment server"]
    assert "which runs `quay.io/coreos/etcd:v3.4" in notes_of(conversion)["spec.elasticPolicy.rdzvHost: meet.team"]


def waiting(host: str, name: str = "wait-for-etcd") -> Any:
    job = copy.deepcopy(elastic(host))
    wait = {"name": name, "image": "busybox:1.36", "command": ["sh", "-c", f"until nc -z {host} 2379; do sleep 1; done"]}
    fetch = {"name": "fetch", "image": "busybox:1.36", "command": ["sh", "-c", "wget https://meet-data.example/x"]}
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["initContainers"] = [wait, fetch]
    return job


@pytest.mark.parametrize("name", ["wait-for-etcd", "wait"])
def test_a_wait_for_the_etcd_of_the_same_file_goes_with_it(name):
    conversion = convert(*ETCD, waiting("meet.team", name))
    assert [container["name"] for container in conversion.spec["pod"]["init_containers"]] == ["fetch"]  # from another host
    assert conversion.spec["rendezvous"] == {"backend": "etcd"}
    assert "overrides" not in conversion.spec
    notes = [str(note) for note in conversion.notes]
    assert any(note.startswith(f"`init container {name}`: left out: it asks for `meet`") for note in notes)
    assert "`init container wait-for-etcd`: added by kfjob: it waits until the job's etcd answers" in notes
    assert not any("{" in note for note in notes)


def replace_init_container(job: Any, **container: Any) -> Any:
    job = copy.deepcopy(job)
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["initContainers"] = [{"name": "first", "image": "busybox:1.36"} | container]
    return job


def run_text(text: str) -> dict[str, Any]:
    return {"command": ["sh", "-c", text]}


@pytest.mark.parametrize(
    "container",
    [
        run_text("until nslookup meet.team.svc.cluster.local; do sleep 2; done"),
        run_text("for i in $(seq 30); do\n  wget -q http://meet:2379/ >/dev/null 2>&1 && exit 0\n  sleep 1\ndone; exit 1"),
        run_text('while [ -z "$(curl -s meet:2379/health)" ]; do echo "waiting, $(date)"; sleep 1; done'),
        run_text("until nc -z $ETCD_HOST 2379; do :; done") | {"env": [{"name": "ETCD_HOST", "value": "meet"}]},
        {"command": ["nc", "-z", "meet", "2379"]},
        {"command": ["/bin/sh", "-c"], "args": ["until nc -z meet 2379; do sleep 1; done"]},
    ],
)
def test_what_only_waits_for_a_replaced_etcd_is_removed(container):
    conversion = convert(*ETCD, replace_init_container(elastic("meet"), **container))
    assert "init_containers" not in conversion.spec.get("pod", {})
    assert conversion.spec["rendezvous"] == {"backend": "etcd"}


@pytest.mark.parametrize(
    "container",
    [
        run_text("until nc -z meet 2379; do sleep 1; done\npython prepare_data.py"),
        run_text("nc -z meet 2379; echo $(python prepare_data.py)"),
        run_text("pip install meet && echo meet"),
        {"command": ["python", "fill.py", "--etcd=http://meet.team:2379"]},
        {"command": ["python", "fill.py"], "env": [{"name": "ETCD_ENDPOINT", "value": "meet:2379"}]},
        {"env": [{"name": "ETCD_ENDPOINT", "value": "meet:2379"}]},
        run_text("nc -z 80 meet&&prepare"),
    ],
)
def test_an_etcd_that_may_do_more_for_the_job_is_not_replaced(container):
    conversion = convert(*ETCD, replace_init_container(elastic("meet"), **container))
    assert [item["name"] for item in conversion.spec["pod"]["init_containers"]] == ["first"]
    assert conversion.spec["rendezvous"] == {"backend": "etcd", "endpoint": "meet:2379"}
    assert "must exist before the job starts" in notes_of(conversion)["Service meet"]


def test_an_etcd_that_another_job_of_the_file_needs_is_not_replaced():
    other = elastic("meet") | {"metadata": {"name": "two"}}
    conversion = convert(*ETCD, elastic("meet"), other, name="inner")
    assert conversion.spec["rendezvous"] == {"backend": "etcd", "endpoint": "meet:2379"}
    notes = notes_of(conversion)
    assert notes["PyTorchJob two"] == "left out: a job of its own, which `--name` or `--at` chooses"
    assert "must exist before the job starts" in notes["Deployment server"]
    held = {"apiVersion": "w/v1", "kind": "AppWrapper", "metadata": {"name": "w"}, "spec": {"inner": other}}
    assert "endpoint" in convert(*ETCD, elastic("meet"), held, name="inner").spec["rendezvous"]
    user = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [run_text("etcdctl meet:2379")]},
    }
    assert "endpoint" in convert(*ETCD, elastic("meet"), user).spec["rendezvous"]
    assert convert(*ETCD, elastic("meet"), JOB | {"metadata": {"name": "two"}}, name="inner").spec["rendezvous"] == {
        "backend": "etcd"
    }


def test_the_manager_of_other_labels_has_a_note():
    label = {"app.kubernetes.io/managed-by": "kustomize"}
    job = copy.deepcopy(JOB)
    job["metadata"]["labels"] = label
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"] = {"labels": label}
    items = [note.item for note in convert(job).notes]
    assert items == [
        "metadata.labels.app.kubernetes.io/managed-by: kustomize",
        "spec.pytorchReplicaSpecs.Worker.template.metadata.labels.app.kubernetes.io/managed-by: kustomize",
    ]


def test_a_wait_for_an_etcd_that_stays_keeps_its_name_and_place():
    conversion = convert(waiting("meet"))
    assert [container["name"] for container in conversion.spec["pod"]["init_containers"]] == ["wait-for-etcd", "fetch"]
    assert "overrides" not in conversion.spec
    assert conversion.notes == ()


@pytest.mark.parametrize("documents", [ETCD[:1], ()], ids=["only its service", "none"])
def test_an_etcd_that_is_not_in_the_file_stays(documents):
    conversion = convert(*documents, elastic("meet"))
    assert conversion.spec["rendezvous"] == {"backend": "etcd", "endpoint": "meet:2379"}


def test_owners_and_finalizers_are_named():
    metadata = {"name": "inner", "ownerReferences": [{"kind": "Trial"}], "finalizers": ["team/keep"], "uid": "1"}
    assert {"metadata.ownerReferences", "metadata.finalizers"} <= set(notes_of(convert(JOB | {"metadata": metadata})))


def test_a_problem_inside_another_object_has_its_line():
    faulty = yaml.safe_load(yaml.safe_dump(JOB))
    faulty["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = "two"
    text = yaml.safe_dump({"apiVersion": "a/v1", "kind": "AppWrapper", "metadata": {"name": "w"}, "spec": {"inner": faulty}})
    with pytest.raises(SpecError) as caught:
        import_manifest(text, file="job.yaml")
    (problem,) = caught.value.problems
    assert problem.file == "job.yaml"
    assert text.splitlines()[(problem.line or 0) - 1].strip() == "replicas: two"


def hold(text: str) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "outer"}, "data": {"job.yaml": text}}


def test_text_of_several_documents_or_of_json_holds_a_job():
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    assert convert(hold(yaml.safe_dump_all([other, JOB]))).spec["name"] == "inner"
    assert convert(hold(json.dumps(JOB))).spec["name"] == "inner"
    assert convert(hold(yaml.safe_dump_all([JOB, JOB])), path="data.job.yaml.1").spec["name"] == "inner"


def test_text_is_read_as_kubectl_reads_it():
    text = yaml.safe_dump(JOB).replace("name: inner", "name: inner\n  labels: {date: 2024-01-02}")
    assert convert(hold(text)).spec["job_labels"] == {"date": "2024-01-02"}


@pytest.mark.parametrize(
    "values",
    [
        "a0: &a0 x\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
        "a: &a [*a]\n",
        "a: [\n",
        "a: 1\nb: {c: 1, 'c': 2}\n",
    ],
    ids=["many aliases", "endless alias", "broken", "duplicate key"],
)
def test_text_that_cannot_be_read_is_named_in_the_error(values):
    with pytest.raises(SpecError) as caught:
        convert(hold(values + yaml.safe_dump(JOB)))
    (problem,) = caught.value.problems
    assert "`data.job.yaml` cannot be read" in str(problem.detail)


def test_namespace_and_queue_of_the_object_around_the_job_are_kept():
    metadata = {"name": "outer", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "gpus", "other": "x"}}
    holder = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": metadata}
    conversion = convert(holder | {"spec": {"components": [{"template": JOB}]}})
    assert conversion.spec["namespace"] == "team"
    assert conversion.spec["scheduling"]["queue"] == "gpus"
    assert {"namespace: team", "kueue.x-k8s.io/queue-name: gpus"} <= notes_of(conversion).keys()
    own = JOB | {"metadata": {"name": "inner", "namespace": "mine"}}
    assert convert(holder | {"spec": {"components": [{"template": own}]}}).spec["namespace"] == "mine"


BRACES = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: a}}
spec:
  pytorchReplicaSpecs:
    Worker:
      restartPolicy: {restarts}
      template:
        spec:
          containers:
          - name: pytorch
            image: a:1
            command: [bash, -c, {text}]
"""


@pytest.mark.parametrize("text", ["docker ps --format '{{.ID}}'", "echo {% x %}", "echo {{ x }}"])
def test_braces_of_a_program_are_not_the_reason_of_an_error_in_another_line(text):
    with pytest.raises(SpecError) as raised:
        import_manifest(BRACES.format(restarts="never", text=json.dumps(text)))
    assert "`never` is not a value of" in str(raised.value) or "Never" in str(raised.value)
    assert "template, not a manifest" not in str(raised.value)
    assert import_manifest(BRACES.format(restarts="Never", text=json.dumps(text))).spec["command"][-1] == text


def test_syntax_error_behind_braces_of_a_program_is_reported():
    text = BRACES.format(restarts="Never", text="'docker ps --format {{.ID}}'") + "\n  x: [\n"
    with pytest.raises(SpecError, match="invalid YAML"):
        import_manifest(text)
