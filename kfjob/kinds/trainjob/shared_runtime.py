"""JobPlan -> a TrainJob of a runtime that exists: what Trainer lets a job patch in its pods, and what it does not. Pure.

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
_OWN = frozenset({"name", *trainer_api.TRAINER_FIELDS.values()})

_POD_FIELDS = MappingProxyType(
    {
        "dnsPolicy": "pod.host_network",
        "hostIPC": "pod.host_ipc",
        "hostNetwork": "pod.host_network",
        "initContainers": "pod.init_containers",
        "priorityClassName": "scheduling.priority_class",
        "resourceClaims": "resources",
        "schedulerName": "scheduling.scheduler",
        "topologySpreadConstraints": "scheduling.spread",
    }
)
_CONTAINER_FIELDS = MappingProxyType(
    {
        "envFrom": "env_from",
        "imagePullPolicy": "image_pull_policy",
        "lifecycle": "pod.lifecycle",
        "ports": "pod.ports",
        "workingDir": "pod.working_dir",
    }
)
"""Fields of the manifest that remain, and those of the spec that make them."""


class RuntimeName(NamedTuple):
    """A runtime by its kind and name."""

    kind: str
    name: str


def read_runtime_name(text: str) -> RuntimeName:
    """Return the runtime that a spec names: `NAME` of the cluster, or `trainingruntime/NAME` of the namespace."""
    kind, _, name = text.rpartition("/")
    return RuntimeName(trainer_api.RUNTIME_KIND if kind else trainer_api.CLUSTER_RUNTIME_KIND, name)


def split_template(template: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return what the TrainJob's `trainer` says of a compiled pod template, and the patch of the runtime with the rest."""
    spec, (container,) = template["spec"], template["spec"]["containers"]
    trainer = {field: container[name] for field, name in trainer_api.TRAINER_FIELDS.items() if name in container}
    patched = {name: value for name, value in container.items() if name in PATCHED_CONTAINER}
    pod = {name: value for name, value in spec.items() if name in PATCHED_POD}
    if patched:
        pod["containers"] = [{"name": trainer_api.NODE, **patched}]
    job = {"name": trainer_api.NODE, "template": {"spec": {"template": {"metadata": template["metadata"], "spec": pod}}}}
    patch: JsonObject = {
        "manager": trainer_api.PATCH_MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }
    return trainer, patch


def find_problems(plan: JobPlan, name: RuntimeName) -> Iterator[Problem]:
    """Yield what a job cannot change in a runtime that others share."""
    spec = plan.spec
    hint = f"put it into the runtime `{name.name}`, or remove `runtime`: kfjob then makes a runtime for the job"
    if name == (trainer_api.RUNTIME_KIND, plan.name):
        yield Problem(
            title="the runtime has the name of the job, which is kept for a runtime of kfjob",
            path="runtime",
            hint="give the job another name",
        )
    template = compile_pod_template(plan)["spec"]
    (container,) = template.pop("containers")
    if plan.own_etcd_image:
        yield Problem(
            title="an etcd of the job needs a container that waits for it, and a TrainJob cannot add one to a runtime",
            path="rendezvous",
            hint="use `rendezvous: c10d`, or an etcd that exists: `rendezvous: {backend: etcd, endpoint: HOST:PORT}`",
        )
        template.pop("initContainers", None)
    known = _POD_FIELDS | _CONTAINER_FIELDS
    if not spec.pod.ports:
        container.pop("ports", None)  # the port of a static rendezvous, which has an error of its own
    rest = [*(template.keys() - PATCHED_POD), *(container.keys() - PATCHED_CONTAINER - _OWN)]
    for path in sorted({known[field] for field in rest}):
        yield Problem(title="a TrainJob cannot change this in a runtime that exists", path=path, hint=hint)
    if "policy" in spec.restarts.model_fields_set:
        yield Problem(title="the restart policy of the pods is that of the runtime", path="restarts.policy", hint=hint)
    if spec.run.backoff_limit is not None:
        yield Problem(title="the back-off limit of the pods is that of the runtime", path="run.backoff_limit", hint=hint)
    if plan.scheduling.gang:
        yield Problem(title="the gang scheduling of the pods is that of the runtime", path="scheduling.gang", hint=hint)
    if spec.elastic:
        yield Problem(
            title="a runtime of Trainer starts a fixed number of nodes",
            path="elastic",
            hint="remove `elastic`, or remove `runtime`: kfjob then makes a runtime for the job",
        )
    if plan.rendezvous.backend == "static" and plan.rendezvous.port != RENDEZVOUS_PORT:
        yield Problem(
            title=f"the port of a static rendezvous is {trainer_api.MASTER_PORT} in a runtime of Trainer",
            path="rendezvous.port",
            hint="remove the port, or use `rendezvous: c10d`",
        )


def find_runtime_problems(job: JsonMapping, read: ReadObject) -> Iterator[Problem]:
    """Yield that the runtime of a job does not exist, or that it does not connect the nodes of a job."""
    reference = job["spec"]["runtimeRef"]
    kind, name = reference["kind"], reference["name"]
    runtime = read(trainer_api.API_VERSION, f"{kind.lower()}s", name, namespaced=kind == trainer_api.RUNTIME_KIND)
    if runtime is None:
        yield Problem(
            title=f"there is no {kind} `{name}`",
            path="runtime",
            hint=f"`kubectl get {kind.lower()}s` lists them; or remove `runtime`: kfjob then makes a runtime for the job",
        )
    elif (runtime["spec"].get("mlPolicy") or {}).get("torch") is None:
        yield Problem(
            title=f"{kind} `{name}` does not have the policy `torch`, so every node would train alone",
            path="runtime",
            hint="use a runtime with `mlPolicy: {torch: {}}`, such as `torch-distributed`",
        )
