"""resolve(JobSpec, Context) -> JobPlan: decide every default once, and record its origin and its reason.

Pure. Facts from outside the spec (the launch id, the namespace, facts about the cluster or this machine) enter through
`Context`. The same spec and the same Context give the same plan, byte for byte.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator

from msgspec.structs import replace
from pydantic import BaseModel

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError, UsageError
from kfjob.base.units import MIB, parse_quantity
from kfjob.image.references import parse_reference
from kfjob.joblog.observe_config import Limits, ObserveConfig, RecoveryLimits
from kfjob.objects import api_objects, names
from kfjob.plan import environment, launchers, rendezvous
from kfjob.plan.unconnected_programs import find_unconnected_nodes
from kfjob.plan.values import GRACE_SECONDS, Context, Decisions, JobPlan
from kfjob.shell.run_length import find_run_length
from kfjob.spec import instances
from kfjob.spec.fields import UNLIMITED
from kfjob.spec.instances import HYPERPOD_PREFIX, Instance
from kfjob.spec.job import SPEC_VERSION, JobSpec, get_master_path, make_master_spec
from kfjob.spec.pod import Resources
from kfjob.spec.scheduling import Restarts, Scheduling, Toleration

SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - the C library's path
INSTANCE_LABEL = "node.kubernetes.io/instance-type"


def resolve(spec: JobSpec, context: Context) -> JobPlan:
    """Return the plan of a job.

    Raises:
        SpecError: the spec has problems that depend on the backend; the error holds all of them.
    """
    problems: list[Problem] = []
    plan = master = None
    try:
        plan = _resolve_pods(spec, context)
    except SpecError as err:
        problems += err.problems
    processes = {} if plan is None else {"processes_per_node": _read_processes(plan.processes_per_node)}
    if master_spec := make_master_spec(spec, **processes):
        try:
            master = _resolve_pods(master_spec, context)
        except SpecError as err:
            known = {problem.title for problem in problems}
            problems += [dataclasses.replace(p, path=get_master_path(p.path)) for p in err.problems if p.title not in known]
    if problems or plan is None:
        raise SpecError(problems)
    if master is None:
        return plan
    decided = {(decision.path, decision.value) for decision in plan.decisions}
    other = [decision for decision in master.decisions if (decision.path, decision.value) not in decided]
    own = tuple(decision._replace(path=f"master.{decision.path}") for decision in other)
    return replace(plan, master=master, decisions=(*plan.decisions, *own))


def _read_processes(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _resolve_pods(spec: JobSpec, context: Context) -> JobPlan:
    """Return the plan of a job whose pods are all equal."""
    decisions = Decisions()
    launcher = spec.launcher or "torchrun"
    instance = instances.find_instance(spec.instance) if spec.instance else None
    resources = _resources(spec, instance, decisions)
    processes = _processes(spec, resources, decisions)
    if problems := [*_problems(spec, context, resources), *launchers.find_problems(spec, processes)]:
        raise SpecError(problems)
    if spec.master is None and not spec.is_dynamic:
        decisions.decide("master", None, "true", "without elastic agents the operator sets the Master's address in all pods")
    _record_static_defaults(spec, context, decisions)
    fields = _dump(spec)
    pull_secret = _pull_secret(spec, context, decisions)
    pods = context.name_pods(spec.name, spec.nodes, master=spec.has_master)
    return JobPlan(
        spec=spec,
        pods=pods,
        namespace=decisions.decide(
            "namespace", spec.namespace, context.namespace, context.namespace_reason, origin=context.namespace_origin
        ),
        launch=context.launch,
        backend=context.backend,
        image=(spec.image or "") if context.capabilities.has_images else "",
        image_pull_secrets=(*spec.image_pull_secrets, *filter(None, [pull_secret])),
        own_pull_secret=pull_secret,
        launcher=launcher,
        processes_per_node=processes,
        command=launchers.make_command(spec, launcher, processes),
        env=environment.list_variables(spec, instance, resources, decisions, in_cluster=context.capabilities.has_images),
        instance=instance,
        resources=resources,
        volumes=(*spec.volumes, *rendezvous.tls_volumes(spec)),
        shared_memory=_shared_memory(spec, decisions),
        rendezvous=rendezvous.plan_rendezvous(spec, pods[0], context.launch, decisions),
        own_etcd_image=context.etcd_image if has_own_etcd(spec) else "",
        restarts=_restarts(spec, decisions),
        scheduling=_scheduling(spec, instance, resources, decisions),
        grace_seconds=_grace(spec, decisions),
        observe_config=_observe_config(spec, processes, pods),
        spec_json=_compact(fields),
        spec_hash=_hash(fields),
        start_folder=context.start_folder,
        decisions=tuple(decisions.entries),
    )


_STATIC_DEFAULTS = (
    ("restarts", "max", "how often torchrun restarts the processes"),
    ("restarts", "always", "a failure that no restart cures ends a local job at once"),
    ("run", "clean_pods", "pods that have ended and their logs stay"),
    ("scheduling", "istio_sidecar", "Istio's proxy would keep the pods from ending"),
)


def _record_static_defaults(spec: JobSpec, context: Context, decisions: Decisions) -> None:
    """Record the defaults of the spec's own definition, and the image of the job's own etcd."""
    for part, field, reason in _STATIC_DEFAULTS:
        model = getattr(spec, part)
        value = str(getattr(model, field))
        decisions.decide(f"{part}.{field}", value if field in model.model_fields_set else None, value, reason)
    if context.kind:
        chosen = context.kind.lower() if context.kind_origin == "spec" else None
        decisions.decide("target", chosen, context.kind.lower(), context.kind_reason, origin=context.kind_origin)
    if has_own_etcd(spec):
        decisions.decide("etcd.image", None, context.etcd_image, "3.4 refreshes the lease that torch's backend needs")


def has_own_etcd(spec: JobSpec) -> bool:
    """Return whether the job has an etcd of its own."""
    return spec.is_dynamic and spec.rendezvous.has_own_etcd


def spec_hash(spec: JobSpec) -> str:
    """Return twelve hexadecimal digits, which are the same for all spellings of one spec."""
    return _hash(_dump(spec))


def _dump(spec: JobSpec) -> JsonObject:
    return spec.model_dump(mode="json", exclude_defaults=True)


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_sorted = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def _hash(fields: JsonObject) -> str:
    return hashlib.sha256(f"{SPEC_VERSION}:{_sorted(fields)}".encode()).hexdigest()[:12]


def _problems(spec: JobSpec, context: Context, resources: Resources) -> Iterator[Problem]:
    if context.capabilities.has_images:
        if spec.train and resources.neuron:
            yield Problem(
                title="kfjob's trainer cannot train on Neuron devices: it is written for CUDA and the CPU",
                path="train",
                hint="use `command` with an image and a program for AWS Neuron (torch-neuronx)",
            )
        return
    if not spec.command and not spec.train:
        yield Problem(
            title="the local backend runs no image, so it cannot start the image's own entry point",
            path="args" if spec.args else "command",
            hint="set `command`, or run with `--backend kubernetes`",
        )
    for index, volume in enumerate(spec.volumes):
        if kind := {"config_map": "config map", "secret": "secret"}.get(volume.kind):
            yield Problem(
                title=f"volume `{volume.name}` is a {kind}, which this machine does not have",
                path=f"volumes.{index}",
                hint="run with `--backend kubernetes`, or use `pvc`, `host_path` or `empty_dir`",
            )
    for field, kind in (("init_containers", "init containers"), ("sidecars", "sidecars")):
        if getattr(spec.pod, field):
            title, hint = f"the local backend cannot run {kind}", "run with `--backend kubernetes`"
            yield Problem(title=title, path=f"pod.{field}", hint=hint)
    if spec.rendezvous.tls:
        yield Problem(title="the certificates are in a secret, which this machine does not have", path="rendezvous.tls")


def _pull_secret(spec: JobSpec, context: Context, decisions: Decisions) -> str:
    if not spec.make_pull_secret or not spec.image or not context.capabilities.has_images:
        return ""
    try:
        name = names.pull_secret_name(parse_reference(spec.image).registry)
    except UsageError as err:
        raise SpecError([Problem(title=err.title, path="image", detail=err.cause, hint=err.hint)]) from None
    return decisions.decide("image_pull_secrets", None, name, "kfjob renews it at every submit and relaunch")


def _resources(spec: JobSpec, instance: Instance | None, decisions: Decisions) -> Resources:
    """Return the resources of the spec, and the devices of the instance where the spec has none."""
    if instance is None:
        return spec.resources
    efa = instance.default_efa if spec.nodes > 1 and not spec.resources.efa_claim else 0
    counts = {"gpus": instance.gpus, "neuron": instance.neuron, "efa": efa}
    all_devices = f"all devices of {instance.name}"
    if efa or not instance.efa:
        efa_reason = all_devices
    elif spec.resources.efa_claim:
        efa_reason = f"the claim `{spec.resources.efa_claim}` requests them"
    elif spec.nodes == 1:
        efa_reason = "one node needs no network"
    else:
        efa_reason = f"{instance.name} has {instance.efa}; request them if EFA is set up"
    resources = {}
    for name, count in counts.items():
        if name in spec.resources.model_fields_set or not (count or (name == "efa" and instance.efa)):
            continue
        reason = efa_reason if name == "efa" else all_devices
        resources[name] = int(decisions.decide(f"resources.{name}", None, str(count), reason, origin="instance"))
    return spec.resources.model_copy(update=resources)


def _processes(spec: JobSpec, resources: Resources, decisions: Decisions) -> str:
    value = None if spec.processes_per_node is None else str(spec.processes_per_node)
    if spec.launcher == "python":
        return decisions.decide("processes_per_node", value, "1", "`python` starts one process, which can start others")
    count, reason = count_processes(spec, resources)
    return decisions.decide("processes_per_node", value, str(count), reason)


_ONE_TO_ONE = "1"
"""NEURON_LOGICAL_NC_CONFIG: a logical core of Trainium2 has two physical cores (2, the default) or one (1)."""


def count_processes(spec: JobSpec, resources: Resources) -> tuple[int, str]:
    """Return the default number of processes on each node, and the reason for it."""
    if resources.gpus:
        return resources.gpus, "one process for each GPU"
    if not resources.neuron:
        return 1, "the job requests no GPU"
    instance = instances.find_instance(spec.instance) if spec.instance else None
    if instance is None or not instance.neuron_cores:
        return resources.neuron, "one process for each device, because the number of their cores is unknown"
    is_split = instance.accelerator == "Trainium2" and spec.env.get("NEURON_LOGICAL_NC_CONFIG") == _ONE_TO_ONE
    cores = instance.neuron_cores * (2 if is_split else 1)
    return resources.neuron * cores, f"one process for each of the {cores} cores of a Neuron device"


def _shared_memory(spec: JobSpec, decisions: Decisions) -> str | None:
    """Return the size of /dev/shm. NCCL and data loaders need more than the 64 MiB of a container runtime."""
    if spec.shared_memory == "0" or any(volume.mount_path == SHARED_MEMORY_PATH for volume in spec.volumes):
        return None
    if spec.shared_memory == UNLIMITED:
        decisions.decide("shared_memory", UNLIMITED, "", "")
        return ""
    memory = spec.resources.memory
    mebibytes = int(parse_quantity(memory or "0") / 2) // MIB
    half = "" if not memory else f"{mebibytes // 1024}Gi" if mebibytes and not mebibytes % 1024 else f"{max(mebibytes, 1)}Mi"
    reason = "half of the pod's memory" if half else "the job requests no memory, so the node's memory is the limit"
    return decisions.decide("shared_memory", spec.shared_memory, half, reason)


def _restarts(spec: JobSpec, decisions: Decisions) -> Restarts:
    hyperpod, default, reason = spec.scheduling.hyperpod, spec.restarts.policy, "a failed pod and its logs stay"
    if spec.is_dynamic and spec.min_nodes < spec.max_nodes:
        default, reason = "OnFailure", "with `Never` one drained node ends an elastic job"
    if hyperpod and hyperpod.auto_resume:
        default, reason = "OnFailure", "HyperPod's auto-resume needs it"
    value = spec.restarts.policy if "policy" in spec.restarts.model_fields_set else None
    decisions.decide("restarts.policy", value, default, reason)
    changes: JsonObject = {"policy": value or default}
    if spec.elastic and spec.elastic.max_restarts is not None:
        changes["max"] = spec.elastic.max_restarts
    return spec.restarts.model_copy(update=changes)


def _scheduling(spec: JobSpec, instance: Instance | None, resources: Resources, decisions: Decisions) -> Scheduling:
    """Return the scheduling of the spec, with whether it is evictable, and a selector and a toleration for the instance."""
    scheduling = spec.scheduling
    is_elastic = spec.min_nodes < spec.max_nodes
    reason = "an elastic job goes on with fewer pods" if is_elastic else "the job fails when one of its pods is evicted"
    chosen = None if scheduling.evictable is None else str(scheduling.evictable)
    evictable = decisions.decide("scheduling.evictable", chosen, str(is_elastic), reason)
    # pydantic's own copy validates nothing: for that, it would build the schema of this model a second time
    scheduling = BaseModel.model_copy(scheduling, update={"evictable": evictable == "True"})
    if spec.instance is None:
        return scheduling
    prefix = HYPERPOD_PREFIX if scheduling.hyperpod else ""
    name = prefix + spec.instance.removeprefix(HYPERPOD_PREFIX) if prefix else spec.instance
    node_type = decisions.decide(
        f"scheduling.node_selector.{INSTANCE_LABEL}",
        scheduling.node_selector.get(INSTANCE_LABEL),
        name,
        "pods run on nodes of this type",
        origin="instance",
    )
    key = api_objects.NEURON_RESOURCE if resources.neuron else api_objects.GPU_RESOURCE
    tolerations = scheduling.tolerations
    has_devices = (instance and instance.accelerator) or resources.gpus or resources.neuron
    if has_devices and all(toleration.key != key for toleration in tolerations):
        decisions.decide("scheduling.tolerations", None, key, "such nodes often have this taint", origin="instance")
        tolerations = (*tolerations, Toleration(key=key, effect="NoSchedule"))
    selector = scheduling.node_selector | {INSTANCE_LABEL: node_type}
    return scheduling.model_copy(update={"node_selector": selector, "tolerations": tolerations})


def _grace(spec: JobSpec, decisions: Decisions) -> int:
    value = None if spec.pod.grace is None else str(spec.pod.grace)
    reason = "torchrun gives its processes 30 s after SIGTERM, and Kubernetes' default of 30 s is too short for that"
    return int(decisions.decide("pod.grace", value, str(GRACE_SECONDS), reason))


def _observe_config(spec: JobSpec, processes: str, pods: tuple[str, ...]) -> ObserveConfig:
    loglevel = spec.env.get("LOGLEVEL", "INFO")
    unconnected = find_unconnected_nodes(spec, spec.env.keys())
    length = find_run_length(spec.words)
    return ObserveConfig(
        workers=pods,
        master=spec.has_master,
        rendezvous=spec.rendezvous.backend if spec.is_dynamic else "static",
        processes_per_node=int(processes) if processes.isdecimal() else None,
        expected_steps=spec.train.max_steps if spec.train else length.steps,
        expected_epochs=None if spec.train else length.epochs,
        progress_pattern=spec.progress,
        trainer="kfjob" if spec.train else "",
        unconnected=unconnected.command if unconnected else "",
        loglevel=loglevel if isinstance(loglevel, str) else "INFO",
        limits=Limits(**dict(spec.watchdog)),
        recovery=RecoveryLimits(retries=spec.recovery.retries) if spec.recovery else None,
        frees_survivors=spec.run.after_failure == "stop",
    )
