"""resolve(JobSpec, Context) -> JobPlan: every default decided once, with the reason and where it came from.

Pure. All that comes from outside (who submits, the launch id, facts of the cluster or of this machine) enters by `Context`: the
same spec and the same Context give the same plan, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from kfjob.errors import Problem, SpecError, UsageError
from kfjob.image.references import parse_reference
from kfjob.plan import environment, launchers, rendezvous
from kfjob.plan.values import GRACE_SECONDS, Context, Decisions, JobPlan
from kfjob.spec import instances, names
from kfjob.spec.instances import HYPERPOD_PREFIX, Instance
from kfjob.spec.job import SPEC_VERSION, JobSpec
from kfjob.spec.pod import Resources
from kfjob.spec.scheduling import Restarts, Scheduling, Toleration
from kfjob.units import parse_quantity

SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - where the C library keeps it
INSTANCE_LABEL = "node.kubernetes.io/instance-type"


def resolve(spec: JobSpec, context: Context) -> JobPlan:
    """Decide everything.

    Raises:
        SpecError: with every problem that only shows once the backend is known.
    """
    decisions = Decisions()
    launcher = spec.launcher or "torchrun"
    instance = instances.find_instance(spec.instance) if spec.instance else None
    resources = _resources(spec, instance, decisions)
    processes = _processes(spec, resources, decisions)
    if problems := [*_problems(spec, context), *launchers.problems(spec, processes)]:
        raise SpecError(problems)
    if spec.master is None and not spec.is_dynamic:
        decisions.take("master", None, "true", "without elastic agents the operator tells all pods the Master's address")
    _standing(spec, context, decisions)
    elsewhere, said = environment.from_elsewhere(spec), _said(spec)
    pull_secret = _pull_secret(spec, context, decisions)
    return JobPlan(
        name=spec.name,
        namespace=decisions.take(
            "namespace", spec.namespace, context.namespace, "the current context's namespace", origin="cluster"
        ),
        launch=context.launch,
        backend=context.backend,
        image=(spec.image or "") if context.backend == "kubernetes" else "",
        image_pull_policy=spec.image_pull_policy or "",
        image_pull_secrets=(*spec.image_pull_secrets, *filter(None, [pull_secret])),
        own_pull_secret=pull_secret,
        service_account=spec.service_account or "",
        nodes=spec.nodes,
        min_nodes=spec.elastic.min if spec.elastic else spec.nodes,
        max_nodes=spec.elastic.max if spec.elastic else spec.nodes,
        has_master=spec.has_master,
        is_dynamic=spec.is_dynamic,
        metrics=spec.elastic.metrics if spec.elastic else (),
        launcher=launcher,
        processes_per_node=processes,
        command=launchers.command(spec, launcher, processes),
        env=environment.plain(spec, instance, resources, elsewhere, decisions),
        env_from=elsewhere,
        instance=instance,
        resources=resources,
        volumes=(*spec.volumes, *rendezvous.tls_volume(spec)),
        shared_memory=_shared_memory(spec, decisions),
        rendezvous=rendezvous.plan_rendezvous(spec, context, decisions),
        own_etcd_image=context.etcd_image if has_own_etcd(spec) else "",
        restarts=_restarts(spec),
        run=spec.run,
        scheduling=_scheduling(spec, instance, decisions),
        pod=spec.pod,
        grace_seconds=_grace(spec, decisions),
        labels=tuple(sorted(spec.labels.items())),
        annotations=tuple(sorted(spec.annotations.items())),
        overrides=spec.overrides,
        spec_json=_compact(said),
        spec_hash=_hash(said),
        decisions=tuple(decisions.made),
    )


_STANDING = (
    ("restarts", "max", "how often torchrun starts the processes anew"),
    ("restarts", "policy", "a pod that failed stays, with its logs"),
    ("run", "clean_pods", "pods that have ended stay, with their logs"),
    ("scheduling", "istio_sidecar", "Istio's proxy would keep the pods from ending"),
)


def _standing(spec: JobSpec, context: Context, decisions: Decisions) -> None:
    """Write down the defaults that stand in the spec's own definition, and the image of the job's own etcd."""
    for part, field, reason in _STANDING:
        model = getattr(spec, part)
        value = str(getattr(model, field))
        decisions.take(f"{part}.{field}", value if field in model.model_fields_set else None, value, reason)
    if has_own_etcd(spec):
        decisions.take("etcd.image", None, context.etcd_image, "3.4 refreshes the lease that torch's backend lives on")


def has_own_etcd(spec: JobSpec) -> bool:
    """Whether the job brings an etcd with it."""
    return spec.is_dynamic and spec.rendezvous.has_own_etcd


def spec_hash(spec: JobSpec) -> str:
    """Twelve hexadecimal digits: equal for specs that say the same, however they were written."""
    return _hash(_said(spec))


def _said(spec: JobSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", exclude_defaults=True)


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_sorted = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def _hash(said: dict[str, Any]) -> str:
    return hashlib.sha256(f"{SPEC_VERSION}:{_sorted(said)}".encode()).hexdigest()[:12]


def _problems(spec: JobSpec, context: Context) -> Iterator[Problem]:
    if context.backend == "kubernetes":
        if not spec.image:
            yield Problem(
                title="`image` is missing: pods need one",
                path="image",
                hint="`kfjob push-image` builds one, or run with `--backend local`",
            )
        return
    for index, volume in enumerate(spec.volumes):
        if kind := {"config_map": "config map", "secret": "secret"}.get(volume.kind):
            yield Problem(
                title=f"volume `{volume.name}` is a {kind}, which this machine does not have",
                path=f"volumes.{index}",
                hint="run with `--backend kubernetes`, or use `pvc`, `host_path` or `empty_dir`",
            )
    for field, what in (("init_containers", "init containers"), ("sidecars", "sidecars")):
        if getattr(spec.pod, field):
            yield Problem(title=f"this machine runs no {what}", path=f"pod.{field}", hint="run with `--backend kubernetes`")
    if spec.rendezvous.tls:
        yield Problem(title="the certificates are in a secret, which this machine does not have", path="rendezvous.tls")


def _pull_secret(spec: JobSpec, context: Context, decisions: Decisions) -> str:
    if not spec.make_pull_secret or not spec.image or context.backend != "kubernetes":
        return ""
    try:
        name = names.pull_secret_name(parse_reference(spec.image).registry)
    except UsageError as err:
        raise SpecError([Problem(title=err.title, path="image", detail=err.cause, hint=err.hint)]) from None
    return decisions.take("image_pull_secrets", None, name, "kept by kfjob, renewed at every submit and relaunch")


def _resources(spec: JobSpec, instance: Instance | None, decisions: Decisions) -> Resources:
    """What the spec says, and for the rest what the instance has."""
    if instance is None:
        return spec.resources
    efa = instance.efa if spec.nodes > 1 and instance.checked else 0
    has = {"gpus": instance.gpus, "neuron": instance.neuron, "efa": efa}
    if efa or not instance.efa:
        why = f"{instance.name} has so many"
    else:
        why = (
            "one node needs no network"
            if spec.nodes == 1
            else f"{instance.name} has {instance.efa}: ask for them if you set EFA up"
        )
    reasons = {"efa": why}
    taken = {}
    for name, count in has.items():
        if name in spec.resources.model_fields_set or not (count or (name == "efa" and instance.efa)):
            continue
        reason = reasons.get(name, f"{instance.name} has so many")
        taken[name] = int(decisions.take(f"resources.{name}", None, str(count), reason, origin="instance"))
    return spec.resources.model_copy(update=taken)


def _processes(spec: JobSpec, resources: Resources, decisions: Decisions) -> str:
    said = None if spec.processes_per_node is None else str(spec.processes_per_node)
    devices = resources.gpus or resources.neuron
    if spec.launcher == "python":
        return decisions.take("processes_per_node", said, "1", "`python` starts one process, which may start others")
    reason = "one process for each GPU" if resources.gpus else "one for each device" if devices else "no GPU was asked for"
    return decisions.take("processes_per_node", said, str(devices or 1), reason)


def _shared_memory(spec: JobSpec, decisions: Decisions) -> str | None:
    """Size of /dev/shm: NCCL and data loaders need more than a container runtime's 64 MiB."""
    if spec.shared_memory == "0" or any(volume.mount_path == SHARED_MEMORY_PATH for volume in spec.volumes):
        return None
    memory = spec.resources.memory
    mebibytes = int(parse_quantity(memory or "0") / 2) // 1024**2
    half = "" if not memory else f"{mebibytes // 1024}Gi" if mebibytes and not mebibytes % 1024 else f"{max(mebibytes, 1)}Mi"
    reason = "half of the pod's memory" if half else "no memory was asked for: up to what the node has"
    return decisions.take("shared_memory", spec.shared_memory, half, reason)


def _restarts(spec: JobSpec) -> Restarts:
    if spec.elastic is None or spec.elastic.max_restarts is None:
        return spec.restarts
    return spec.restarts.model_copy(update={"max": spec.elastic.max_restarts})


def _scheduling(spec: JobSpec, instance: Instance | None, decisions: Decisions) -> Scheduling:
    """The spec's own, with the nodes of the instance and their taint."""
    wanted = spec.scheduling
    if instance is None or spec.instance is None:
        return wanted
    prefix = HYPERPOD_PREFIX if wanted.hyperpod else ""
    name = prefix + spec.instance.removeprefix(HYPERPOD_PREFIX) if prefix else spec.instance
    chosen = decisions.take(
        f"scheduling.node_selector.{INSTANCE_LABEL}",
        wanted.node_selector.get(INSTANCE_LABEL),
        name,
        "pods go to nodes of this type",
        origin="instance",
    )
    key = "aws.amazon.com/neuron" if instance.neuron else "nvidia.com/gpu"
    tolerations = wanted.tolerations
    if all(toleration.key != key for toleration in tolerations):
        decisions.take("scheduling.tolerations", None, key, "such nodes are often tainted with it", origin="instance")
        tolerations = (*tolerations, Toleration(key=key, effect="NoSchedule"))
    selector = wanted.node_selector | {INSTANCE_LABEL: chosen}
    return wanted.model_copy(update={"node_selector": selector, "tolerations": tolerations})


def _grace(spec: JobSpec, decisions: Decisions) -> int:
    said = None if spec.pod.grace is None else str(spec.pod.grace)
    reason = "torchrun gives its processes 30 s after SIGTERM, Kubernetes' own default would cut that short"
    return int(decisions.take("pod.grace", said, str(GRACE_SECONDS), reason))
