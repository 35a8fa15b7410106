"""JobPlan -> a TrainJob of an existing runtime: what Trainer lets a job patch in its pods, and what it does not. Pure.

The runtime has Trainer's policy for torch, which sets five of torchrun's variables and refuses them from the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.kinds.base import ReadObject
from kfjob.kinds.pod_template import compile_pod_template
from kfjob.kinds.trainjob import trainer_api
from kfjob.objects.names import RENDEZVOUS_PORT
from kfjob.plan import JobPlan

PATCHED_POD = frozenset(
    {
        *("affinity", "imagePullSecrets", "nodeSelector", "securityContext", "serviceAccountName"),
        *("terminationGracePeriodSeconds", "tolerations", "volumes"),
    }
)
"""Fields of a pod that a TrainJob may patch, as far as a spec has them (PodSpecPatch)."""
PATCHED_CONTAINER = frozenset({"securityContext", "volumeMounts"})
"""The same of a container (ContainerPatch)."""
_IN_TRAINER = frozenset({"name", *trainer_api.TRAINER_FIELDS.values()})
_SPEC_FIELDS = MappingProxyType(
    {
        "dnsPolicy": ("pod", "host_network"),
        "envFrom": ("env_from",),
        "hostIPC": ("pod", "host_ipc"),
        "hostNetwork": ("pod", "host_network"),
        "imagePullPolicy": ("image_pull_policy",),
        "lifecycle": ("pod", "lifecycle"),
        "ports": ("pod", "ports"),
        "priorityClassName": ("scheduling", "priority_class"),
        "resourceClaims": ("resources",),
        "schedulerName": ("scheduling", "scheduler"),
        "topologySpreadConstraints": ("scheduling", "spread"),
        "workingDir": ("pod", "working_dir"),
    }
)
"""Other fields of a pod and its container, and those of the spec that make them."""


class RuntimeRef(NamedTuple):
    """A runtime by its kind and name."""

    kind: str
    name: str


def parse_runtime(text: str) -> RuntimeRef:
    """Return the runtime that a spec names: `NAME` of the cluster, or `trainingruntime/NAME` of the namespace."""
    kind, _, name = text.rpartition("/")
    return RuntimeRef(trainer_api.RUNTIME_KIND if kind else trainer_api.CLUSTER_RUNTIME_KIND, name)


def make_patch(template: JsonObject) -> JsonObject:
    """Return the patch of a runtime with what a compiled pod template says, its container without what `trainer` has."""
    pod = {name: value for name, value in template["spec"].items() if name in PATCHED_POD}
    (container,) = template["spec"]["containers"]
    if patched := {name: value for name, value in container.items() if name in PATCHED_CONTAINER}:
        pod["containers"] = [{"name": trainer_api.NODE, **patched}]
    job = {"name": trainer_api.NODE, "template": {"spec": {"template": {"metadata": template["metadata"], "spec": pod}}}}
    return {
        "manager": trainer_api.PATCH_MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }


def find_unpatchable_fields(plan: JobPlan, runtime: RuntimeRef) -> Iterator[Problem]:
    """Yield what the spec says of the pods, and a job cannot change in a runtime that others share."""
    hint = f"put it into the runtime `{runtime.name}`, or remove `runtime`: kfjob then makes a runtime for the job"
    for path in _list_unpatchable(plan):
        yield Problem(title="a TrainJob cannot change this in an existing runtime", path=path, hint=hint)
    for name, _ in plan.env:
        if name in trainer_api.RESERVED_VARIABLES:
            title = f"the runtime sets `{name}` itself, and refuses it from a job"
            yield Problem(title=title, path=f"env.{name}", hint="remove the variable")
    if runtime == (trainer_api.RUNTIME_KIND, plan.name):
        yield Problem(
            title="the runtime has the name of the job, which is kept for a runtime of kfjob",
            path="runtime",
            hint="give the job another name",
        )
    if plan.own_etcd_image:
        yield Problem(
            title="an etcd of the job needs a container that waits for it, and a TrainJob cannot add one to a runtime",
            path="rendezvous",
            hint="use `rendezvous: c10d`, or an existing etcd: `rendezvous: {backend: etcd, endpoint: HOST:PORT}`",
        )
    if plan.processes_per_node == "cpu":
        yield Problem(
            title="Trainer has no name for one process for each CPU",
            path="processes_per_node",
            hint="write the number of processes",
        )
    if plan.rendezvous.backend == "static" and plan.rendezvous.port != RENDEZVOUS_PORT:
        yield Problem(
            title=f"the port of a static rendezvous is {trainer_api.MASTER_PORT} in a runtime of Trainer",
            path="rendezvous.port",
            hint="remove the port, or use `rendezvous: c10d`",
        )


def _list_unpatchable(plan: JobPlan) -> list[str]:
    """Return the paths of the fields of the spec that decide about a part of the runtime."""
    spec, template = plan.spec, compile_pod_template(plan)["spec"]
    (container,) = template.pop("containers")
    if not spec.pod.ports:
        container.pop("ports", None)  # the port of a static rendezvous, which has an error of its own
    rest = {*(template.keys() - PATCHED_POD), *(container.keys() - PATCHED_CONTAINER - _IN_TRAINER)} - {"initContainers"}
    paths = {".".join(_SPEC_FIELDS[field]) for field in rest}
    own = {
        "elastic": spec.elastic,
        "pod.init_containers": spec.pod.init_containers,
        "pod.sidecars": spec.pod.sidecars,
        "restarts.policy": "policy" in spec.restarts.model_fields_set,
        "run.backoff_limit": spec.run.backoff_limit is not None,
        "scheduling.gang": plan.scheduling.gang,
    }
    return sorted(paths | {path for path, is_set in own.items() if is_set})


def find_runtime_problems(job: JsonMapping, read: ReadObject) -> Iterator[Problem]:
    """Yield what keeps the job from running in its runtime, as far as the user may read the runtime."""
    reference, namespace = job["spec"]["runtimeRef"], job["metadata"].get("namespace", "")
    kind, name = reference["kind"], reference["name"]
    is_namespaced = kind == trainer_api.RUNTIME_KIND
    runtime = read(trainer_api.API_VERSION, f"{kind.lower()}s", name, namespaced=is_namespaced)
    lists = f"`kubectl get {kind.lower()}s{f' -n {namespace}' if is_namespaced else ''}` lists them"
    if runtime is None:
        hint = f"{lists}; or remove `runtime`: kfjob then makes a runtime for the job"
        yield Problem(title=f"there is no {kind} `{name}`", path="runtime", hint=hint)
        return
    if problem := _find_template_problem(job, runtime):
        yield Problem(title=f"{kind} `{name}` {problem}", path="runtime", hint=f"use another runtime: {lists}")


def _find_template_problem(job: JsonMapping, runtime: JsonMapping) -> str:
    """Return why the job cannot run in a runtime, in words behind its name; "" if it can."""
    if (runtime["spec"].get("mlPolicy") or {}).get("torch") is None and job["spec"]["trainer"]["numNodes"] > 1:
        return "does not have the policy `torch`, so the nodes would not find each other"
    jobs = (runtime["spec"].get("template") or {}).get("spec") or {}
    node: JsonMapping = next((one for one in jobs.get("replicatedJobs") or () if one.get("name") == trainer_api.NODE), {})
    template = node.get("template") or {}
    if ((template.get("metadata") or {}).get("labels") or {}).get(trainer_api.LABEL_ANCESTOR) != trainer_api.ANCESTOR:
        label = f"{trainer_api.LABEL_ANCESTOR}: {trainer_api.ANCESTOR}"
        return f"has no replicated job `{trainer_api.NODE}` with the label `{label}`, so it would run its own program"
    pod = ((template.get("spec") or {}).get("template") or {}).get("spec") or {}
    container = next((one for one in pod.get("containers") or () if one.get("name") == trainer_api.NODE), None)
    if container is None:
        return f"has no container `{trainer_api.NODE}`, the one that a job changes"
    if container.get("args") and "args" not in job["spec"]["trainer"]:
        return "has `args`, which would follow the command of the job"
    if (jobs.get("network") or {}).get("subdomain"):
        return "sets `network.subdomain`, so the nodes have other host names than the job expects"
    return ""
