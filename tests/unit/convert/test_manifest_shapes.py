"""Imported manifests of many shapes: fields of the spec hold them, without overrides, and compile to the same job."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfjob.api.specs.imports import import_manifest
from kfjob.base.errors import SpecError
from kfjob.kinds.pytorchjob.importer import comparison, import_job
from kfjob.kinds.pytorchjob.importer.comparison import normalize_job
from kfjob.kinds.pytorchjob.importer.notes import find_addition, split_additions
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.kinds.pytorchjob.schema import quote_fractions
from kfjob.objects.differences import ItemName, differences, split_list
from kfjob.plan import Context, resolve
from kfjob.source.spec_text import load_spec
from kfjob.source.substitute import escape_references
from kfjob.spec.job import JobSpec
from tests.pytorchjobs import lint
from tests.unit.changes import changes
from tests.unit.convert.test_pytorchjob import REFERENCE_JOB

CONTEXT = Context(backend="kubernetes", launch="l1", namespace="team")


def make_template(container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **metadata: Any):
    base = {"name": "pytorch", "image": "registry.example/demo:3", "command": ["python", "fit.py"]}
    own = {key: value for key, value in (base | (container or {})).items() if value is not None}
    other = (pod or {}).get("containers", [])
    spec = {**(pod or {}), "containers": [own, *other]}
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def make_manifest(
    worker: Any,
    master: Any = None,
    *,
    metadata: dict[str, Any] | None = None,
    master_policy: str = "OnFailure",
    **spec: Any,
) -> dict[str, Any]:
    replicas = {"Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": worker}}
    if master is not None:
        replicas["Master"] = {"replicas": 1, "restartPolicy": master_policy, "template": master}
    body = {"pytorchReplicaSpecs": replicas, **spec}
    meta = {"name": "demo", **(metadata or {})}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": body}


def make_twins(template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a job with a Master and Workers from the same template."""
    return make_manifest(template, copy.deepcopy(template), **spec)


def convert(manifest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the imported spec, and the job that it compiles to. The spec is read from YAML, as users have it."""
    conversion = import_manifest(yaml.safe_dump(manifest))
    loaded = load_spec(yaml.safe_dump(conversion.spec, sort_keys=False))
    return conversion.spec, compile_pytorchjob(resolve(loaded.spec, CONTEXT))


def list_changes(manifest: dict[str, Any], job: dict[str, Any]) -> list[str]:
    """Return where the compiled job differs from the manifest in another way than every job does."""
    manifest = manifest | {"spec": quote_fractions(manifest["spec"])}
    found = differences(normalize_job(job), normalize_job(copy.deepcopy(manifest)), ignore_empty=True)
    _, changes = split_additions(part for difference in found for part in split_list(difference))
    return [str(note) for note in changes]


POD = ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec")
ISTIO = "sidecar.istio.io/inject"
HYPERPOD = "sagemaker.amazonaws.com"
RETRIES = f"{HYPERPOD}/job-max-retry-count"
VOLUMES = [
    {"name": "cm", "configMap": {"name": "conf", "defaultMode": 0o755, "items": [{"key": "a", "path": "b", "mode": 0o600}]}},
    {"name": "tok", "secret": {"secretName": "hub", "optional": True, "defaultMode": 0o400}},
    {"name": "node", "hostPath": {"path": "/mnt/x", "type": "DirectoryOrCreate"}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "lake"}},
    {"name": "ro", "persistentVolumeClaim": {"claimName": "frozen", "readOnly": True}},
]
MOUNTS = [
    {"name": "cm", "mountPath": "/etc/demo"},
    {"name": "tok", "mountPath": "/run/tok", "readOnly": True},
    {"name": "node", "mountPath": "/node"},
    {"name": "data", "mountPath": "/in", "subPath": "in", "readOnly": True},
    {"name": "data", "mountPath": "/out", "subPath": "out"},
    {"name": "ro", "mountPath": "/frozen"},
]
SHM = {"name": "dshm", "emptyDir": {"medium": "Memory"}}
SHM_MOUNT = {"name": "dshm", "mountPath": "/dev/shm"}
GPUS = {"resources": {"limits": {"nvidia.com/gpu": 8, "memory": "64Gi"}}}
STATIC = make_template()

FULL = make_template(
    {
        **GPUS,
        "envFrom": [{"secretRef": {"name": "s"}}],
        "env": [{"name": "ROLE", "value": "some"}],
        "volumeMounts": [*MOUNTS, SHM_MOUNT],
        "securityContext": {"privileged": True},
    },
    {
        "volumes": [*VOLUMES, {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "serviceAccountName": "trainer",
        "imagePullSecrets": [{"name": "login"}],
        "initContainers": [{"name": "fetch", "image": "i:1"}],
        "priorityClassName": "high",
        "terminationGracePeriodSeconds": 5,
    },
)
"""A pod with everything that often only the Workers have."""

SHAPES: dict[str, dict[str, Any]] = {
    "metadata": make_twins(
        make_template(labels={"team": "a", "pod": "1"}, annotations={"note": "x", "pod/only": "why"}),
        metadata={"labels": {"team": "a", "job": "2"}, "annotations": {"note": "x", "job/only": "z"}},
    ),
    "istio annotation": make_twins(make_template(annotations={ISTIO: "false"})),
    "istio wanted": make_twins(make_template(labels={ISTIO: "true"})),
    "variables": make_manifest(
        make_template(
            {
                "envFrom": [
                    {"secretRef": {"name": "all"}},
                    {"prefix": "C_", "configMapRef": {"name": "conf", "optional": True}},
                ],
                "env": [
                    {"name": "A", "value": "$(PW)"},
                    {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
                    {"name": "B", "value": "$(PW)"},
                ],
            }
        ),
    ),
    "volumes": make_manifest(make_template({"volumeMounts": MOUNTS}, {"volumes": VOLUMES})),
    "unlimited shared memory": make_manifest(make_template({"volumeMounts": [SHM_MOUNT], **GPUS}, {"volumes": [SHM]})),
    "shared memory of two containers": make_manifest(
        make_template(
            {"volumeMounts": [SHM_MOUNT]},
            {"volumes": [SHM], "initContainers": [{"name": "warm", "image": "i:1", "volumeMounts": [SHM_MOUNT]}]},
        )
    ),
    "shared memory of a sidecar, and a claim twice": make_manifest(
        make_template(
            {"volumeMounts": [SHM_MOUNT, *MOUNTS]},
            {
                "volumes": [SHM, *VOLUMES],
                "initContainers": [{"name": "p", "image": "i:1", "restartPolicy": "Always", "volumeMounts": [SHM_MOUNT]}],
            },
        )
    ),
    "etcd with a Master and a port": make_manifest(
        make_template(),
        make_template({"ports": [{"name": "pytorchjob-port", "containerPort": 23457}]}),
        elasticPolicy={"rdzvBackend": "etcd", "rdzvHost": "meet", "rdzvPort": 2379, "minReplicas": 3, "maxReplicas": 3},
    ),
    "lifecycle": make_manifest(make_template({"lifecycle": {"preStop": {"exec": {"command": ["sleep", "2"]}}}})),
    "ports": make_manifest(
        make_template(
            {
                "ports": [
                    {"name": "a", "containerPort": 80, "protocol": "TCP"},
                    {"name": "b", "containerPort": 81, "protocol": "TCP"},
                    {"name": "c", "containerPort": 81, "protocol": "UDP"},
                ]
            }
        )
    ),
    "pod restart policy": make_manifest(make_template(pod={"restartPolicy": "Always"})),
    "processes of the elastic policy": make_manifest(
        make_template({"command": ["torchrun", "fit.py"]}),
        elasticPolicy={"minReplicas": 2, "maxReplicas": 2, "nProcPerNode": 4},
    ),
    "hyperpod": make_twins(STATIC, metadata={"annotations": {f"{HYPERPOD}/enable-job-auto-resume": "true", RETRIES: "2"}}),
    "requests below limits": make_manifest(
        make_template({"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 2, "memory": "2Gi"}}})
    ),
    "amounts as fractions": make_manifest(
        make_template(
            {"resources": {"requests": {"cpu": 0.5}, "limits": {"cpu": 1.5}}},
            {"initContainers": [{"name": "i", "image": "i:1", "resources": {"requests": {"cpu": 0.25}}}]},
        )
    ),
    "older account name": make_manifest(make_template(pod={"serviceAccount": "reader"})),
    "all of the Worker alone": make_manifest(FULL, make_template()),
    "all of the Master alone": make_manifest(make_template(), FULL),
    "less for the Master": make_manifest(
        make_template({"resources": {"limits": {"nvidia.com/gpu": 8, "memory": "64Gi"}}, "imagePullPolicy": "Always"}),
        make_template({"resources": {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}}}),
    ),
    "another program": make_manifest(
        make_template({"command": ["python", "work.py"], "args": ["--a"]}),
        make_template({"command": None, "image": "r.example/x"}),
    ),
    "another restart policy": make_manifest(make_template(), make_template(), master_policy="Never"),
    "labels of roles": make_manifest(
        make_template(labels={"team": "a", "role": "w"}),
        make_template(labels={"team": "a", "role": "m"}, annotations={"x": "why"}),
        metadata={"labels": {"team": "a"}},
    ),
    "elastic with a Master": make_manifest(
        FULL, make_template(), elasticPolicy={"rdzvBackend": "c10d", "minReplicas": 3, "maxReplicas": 3, "maxRestarts": 4}
    ),
    "default port": make_twins(make_template({"ports": [{"name": "pytorchjob-port", "containerPort": 23456}]})),
    "another port": make_twins(make_template({"ports": [{"name": "pytorchjob-port", "containerPort": 29500}]})),
    "volcano": make_twins(make_template(pod={"schedulerName": "volcano"}), runPolicy={"schedulingPolicy": {"minAvailable": 3}}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_comes_back_without_overrides_and_restarts_and_in_its_order(shape):
    manifest = SHAPES[shape]
    spec, job = convert(manifest)
    assert "overrides" not in spec
    assert list_changes(manifest, job) == []
    for kind, names in list_variables(manifest).items():
        assert [name for name in list_variables(job)[kind] if name in names] == names
    assert spec["restarts"]["max"] == (manifest["spec"].get("elasticPolicy") or {}).get("maxRestarts", 0)
    assert "PET_MAX_RESTARTS" not in yaml.safe_dump(job)
    plan = resolve(JobSpec.model_validate(spec), CONTEXT)
    assert [p for p in lint(JobSpec.model_validate(spec), plan) if p.rule == "replaced-command"] == []


def list_variables(job: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of the training container's variables by role."""
    containers = {kind: r["template"]["spec"]["containers"][0] for kind, r in job["spec"]["pytorchReplicaSpecs"].items()}
    return {kind: [variable["name"] for variable in container.get("env", [])] for kind, container in containers.items()}


def test_import_of_an_import_is_the_same_spec():
    for shape, manifest in SHAPES.items():
        _, job = convert(manifest)
        del job["metadata"]["annotations"]
        again = import_manifest(yaml.safe_dump(job))
        assert compile_pytorchjob(resolve(JobSpec.model_validate(again.spec), CONTEXT))["spec"] == job["spec"], shape
        assert "overrides" not in again.spec, shape


def test_master_has_only_what_the_manifest_gives_it():
    spec, job = convert(SHAPES["all of the Worker alone"])
    assert spec["master"] == {
        "image_pull_secrets": [],
        "env": {},
        "env_from": [],
        "resources": {},
        "volumes": [],
        "shared_memory": 0,
        "service_account": "default",
        "scheduling": {},
        "pod": {},
    }
    master = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert set(master) == {"terminationGracePeriodSeconds", "serviceAccountName", "containers"}
    assert set(master["containers"][0]) == {"name", "image", "command", "env"}


def test_shared_memory_of_another_container_leaves_the_mounts_to_the_spec():
    """A volume that is added to the spec later must be mounted."""
    other = {"name": "proxy", "image": "i:1", "volumeMounts": [SHM_MOUNT]}
    manifest = make_manifest(
        make_template({"volumeMounts": [SHM_MOUNT, *MOUNTS]}, {"volumes": [SHM, *VOLUMES], "containers": [other]})
    )
    spec, job = convert(manifest)
    assert list_changes(manifest, job) == []
    (replica,) = spec["overrides"]["spec"]["pytorchReplicaSpecs"].values()
    pod = replica["template"]["spec"]
    assert (list(pod), [container["name"] for container in pod["containers"]]) == (["containers"], ["proxy"])
    more = spec["volumes"] + [{"name": "more", "empty_dir": True, "mount_path": "/more"}]
    job = compile_pytorchjob(resolve(JobSpec.model_validate(spec | {"volumes": more}), CONTEXT))
    mounts = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert "/more" in [mount["mountPath"] for mount in mounts]


def test_amounts_as_fractions_are_text_in_every_place_of_a_spec():
    container = {"name": "side", "image": "i:1", "resources": {"limits": {"cpu": 0.5}}}
    other = {"name": "pytorch", "resources": {"requests": {"cpu": 0.25}}}
    template = {"template": {"spec": {"containers": [other]}}}
    text = {
        "name": "demo",
        "image": "r.example/demo:3",
        "command": ["fit"],
        "resources": {"cpu": 1.5},
        "pod": {"sidecars": [container]},
        "overrides": {"spec": {"pytorchReplicaSpecs": {"Worker": template}}},
    }
    job = compile_pytorchjob(resolve(load_spec(yaml.safe_dump(text)).spec, CONTEXT))
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["initContainers"][0]["resources"] == {"limits": {"cpu": "0.5"}}
    assert pod["containers"][0]["resources"] == {"requests": {"cpu": "0.25"}, "limits": {"cpu": "1.5"}}


def test_worker_without_replicas_beside_a_master_is_left_out():
    manifest = make_twins(make_template({"command": ["python", "fit.py"]}))
    manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 0
    conversion = import_manifest(yaml.safe_dump(manifest))
    job = compile_pytorchjob(resolve(JobSpec.model_validate(conversion.spec), CONTEXT))
    assert list(job["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    assert [note.item for note in conversion.notes] == ["spec.pytorchReplicaSpecs.Worker.replicas: 0"]
    for replicas in ({"replicas": -1}, {"replicas": False}):
        manifest["spec"]["pytorchReplicaSpecs"]["Worker"] |= replicas
        with pytest.raises(SpecError):
            import_manifest(yaml.safe_dump(manifest))
    manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 0
    del manifest["spec"]["pytorchReplicaSpecs"]["Master"]
    with pytest.raises(SpecError):
        import_manifest(yaml.safe_dump(manifest))


def test_restart_policy_of_a_pod_has_a_note():
    conversion = import_manifest(yaml.safe_dump(SHAPES["pod restart policy"]))
    (note,) = [note for note in conversion.notes if "template.spec.restartPolicy" in note.item]
    assert "the operator replaces it" in note.reason


def test_change_of_a_value_is_no_routine_addition():
    manifest = make_manifest(make_template({"env": [{"name": "LOGLEVEL", "value": "ERROR"}]}))
    _, job = convert(manifest)
    for container in (r["template"]["spec"]["containers"][0] for r in job["spec"]["pytorchReplicaSpecs"].values()):
        container["env"] = [{"name": "LOGLEVEL", "value": "INFO"}]
    assert any("LOGLEVEL" in change for change in list_changes(manifest, job))


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (make_manifest(make_template(), elasticPolicy={"rdzvConf": [{}]}), "spec.elasticPolicy.rdzvConf[0]"),
        (make_manifest(make_template(), elasticPolicy={"rdzvConf": [{"key": "timeout"}]}), "spec.elasticPolicy.rdzvConf[0]"),
        (make_manifest(make_template(labels=["a"])), "Worker.template.metadata.labels"),
        (make_manifest(make_template(annotations="a")), "Worker.template.metadata.annotations"),
        (make_manifest(make_template(labels={"a": 1})), "Worker.template.metadata.labels.a"),
        (make_manifest({**make_template(), "metadata": 5}), "Worker.template.metadata"),
    ],
)
def test_wrong_shape_is_an_error_with_its_path_and_line(manifest, path):
    with pytest.raises(SpecError) as caught:
        import_manifest(yaml.safe_dump(manifest), file="job.yaml")
    assert all(str(problem.path).endswith(path) and problem.line for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["exec", "fit", "--token", "hf_" + "a1B2" * 9], 'use `command: ["bash", "-c", "…"]`'),
        (
            ["cd", "/app", "&&", "fit"],
            'set `workingDir` (an absolute path), or use `command: ["bash", "-c", "cd /app && fit"]`',
        ),
    ],
)
def test_command_that_no_system_has_is_an_error_at_its_line(command, hint):
    with pytest.raises(SpecError) as caught:
        import_manifest(yaml.safe_dump(make_twins(make_template({"command": command}))), file="job.yaml")
    (problem,) = caught.value.problems
    assert problem.path == "spec.pytorchReplicaSpecs.Worker.template.spec.containers[pytorch].command"
    assert problem.line
    assert hint in str(problem.hint)


@pytest.mark.parametrize("empty", [{}, {"name": ""}, {"name": None}])
def test_pull_secret_without_a_name_is_left_out_with_a_note(empty):
    manifest = make_twins(make_template(pod={"imagePullSecrets": [empty, {"name": "login"}]}))
    spec, job = convert(manifest)
    assert spec["image_pull_secrets"] == ["login"]
    assert "overrides" not in spec
    assert list_changes(manifest, job) == []
    notes = [note for note in import_manifest(yaml.safe_dump(manifest)).notes if "imagePullSecrets" in note.item]
    assert [note.reason for note in notes] == ["an item without a name is left out: it names no secret"] * 2


def test_metadata_of_pods_that_a_spec_cannot_hold_has_a_note():
    conversion = import_manifest(yaml.safe_dump(make_manifest(make_template(finalizers=["a/b"]))))
    assert [note.item for note in conversion.notes if "finalizers" in note.item] == [
        "spec.pytorchReplicaSpecs.Worker.template.metadata.finalizers"
    ]


def test_more_variables_and_annotations_need_no_more_compilations(monkeypatch):
    counts = []
    compile_spec = comparison.compile_spec
    for number in (5, 50):
        calls: list[int] = []
        for module in (import_job, comparison):
            monkeypatch.setattr(module, "compile_spec", lambda spec, calls=calls: calls.append(1) or compile_spec(spec))
        env = [{"name": f"V{n}", "value": "x"} for n in range(number)]
        texts, own = ({f"{name}-{n}": "x" for n in range(number)} for name in ("pod", "job"))
        manifest = make_manifest(make_template({"env": env}, annotations=texts), metadata={"annotations": texts | own})
        spec = import_manifest(yaml.safe_dump(manifest)).spec
        assert (spec["annotations"], spec["job_annotations"]) == (texts, own)
        counts.append(len(calls))
    assert counts[0] == counts[1] < 40


VALUES: tuple[Any, ...] = (
    *(None, 5, -1, "", "x", "a b", "8", "etcd", "Never", [], {}, ["a"], [{}], [None], {"a": 1}, True, 1.5),
    *({"name": "a"}, [{"name": "a", "value": ["a"]}], [["a"], {"name": {}}]),
)


@given(st.sampled_from([*SHAPES.values(), REFERENCE_JOB]).flatmap(lambda manifest: changes(manifest, VALUES)))
def test_any_change_of_a_manifest_is_imported_or_is_a_spec_error(manifest):
    with suppress(SpecError):
        assert import_manifest(yaml.safe_dump(manifest)).spec["name"]


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (["bash"], ["-c", "torchrun --nproc-per-node=${N:-8} t.py $$ $(date)"]),
        (["tini", "--", "/bin/sh"], ["-xc", 'exec python t.py "$@"', "--", "$(Q)", "${R}"]),
        (["env", "-S", "bash -c 'echo ${X}'"], None),
        (None, ["nohup", "bash", "-lc", "exec torchrun t.py | tee /x/${HOSTNAME}.log"]),
    ],
)
def test_shell_text_of_command_and_args_is_kept(command, args):
    manifest = make_manifest(make_template({"command": command, "args": args}))
    conversion = import_manifest(yaml.safe_dump(manifest))
    text = yaml.safe_dump(escape_references(conversion.spec), sort_keys=False)
    job = compile_pytorchjob(resolve(load_spec(text).spec, CONTEXT))
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert (container.get("command"), container.get("args")) == (command, args)
    assert "overrides" not in conversion.spec


def test_the_operators_number_of_replicas_is_a_routine_addition():
    manifest = make_manifest(make_template(), make_template())
    for replica in manifest["spec"]["pytorchReplicaSpecs"].values():
        del replica["replicas"]
    conversion = import_manifest(yaml.safe_dump(manifest))
    assert conversion.notes == ()
    assert "one replica" in {note.item for note in conversion.additions}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("metadata", "namespace"), "namespace"),
        (("metadata", "annotations", "team/metadata.namespace"), None),
        (("spec", "pytorchReplicaSpecs", "Worker", "replicas"), "one replica"),
        (("spec", "pytorchReplicaSpecs", "Worker", "template", "metadata", "labels", ISTIO), "no Istio proxy"),
        (("metadata", "labels", ISTIO), None),
        ((*POD, "containers", ItemName("pytorch"), "resources", "requests", "cpu"), "requests"),
        ((*POD, "containers", ItemName("other"), "resources", "requests", "cpu"), None),
        ((*POD, "containers", ItemName("pytorch"), "env", ItemName("LOGLEVEL")), "LOGLEVEL=INFO"),
        ((*POD, "containers", ItemName("pytorch"), "env", ItemName("MY[LOGLEVEL]")), None),
    ],
)
def test_additions_are_recognised_by_the_steps_of_their_paths(path, name):
    addition = find_addition(path)
    assert (addition.name if addition else None) == name
