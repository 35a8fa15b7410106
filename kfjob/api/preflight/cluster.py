"""What a job needs of a cluster, looked at before anything is created. Every check adds its findings; none stops the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kfjob.api.doctor.cluster import is_ready
from kfjob.api.preflight import fit, pod_requirements, quota
from kfjob.api.preflight.pod_requirements import Reference
from kfjob.api.preflight.result import Checked
from kfjob.backends.base import Inventory
from kfjob.backends.resources import CORE
from kfjob.common_types import JsonObject
from kfjob.compile.pod_templates import PodTemplate
from kfjob.errors import AlreadyExists, Forbidden, KfjobError, Refused, Unreachable
from kfjob.plan import JobPlan
from kfjob.spec import api_objects
from kfjob.spec.job import JobSpec
from kfjob.text import plural

_NOT_ALLOWED = "not allowed to see them with these rights"
_SHARED = {"ReadWriteMany", "ReadOnlyMany"}
_KNOWN_OTHERWISE = re.compile(r"exceeded quota|failed quota|error looking up service account|no PriorityClass with name")
"""What the dry run of a pod says of things that are looked at by themselves."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One job, and where it is to run."""

    spec: JobSpec
    plan: JobPlan
    objects: Sequence[JsonObject]
    pods: Sequence[PodTemplate]
    cluster: Inventory


def the_names(wanted: Wanted, found: Checked) -> None:
    """The job's name, and the names of the pods and services that will be made for it."""
    job, namespace = wanted.plan.name, wanted.plan.namespace
    if wanted.cluster.get_object(api_objects.PYTORCHJOB_API_VERSION, api_objects.PYTORCHJOBS, job):
        hint = f"`kfjob stop {job}` removes it, `kfjob relaunch {job}` starts it again"
        found.error(f"there is a job `{job}` in namespace `{namespace}` already", "name", hint=hint)
        return
    taken = []
    for resource, what in (("pods", "pod"), ("services", "service")):
        try:
            there = {one["metadata"]["name"] for one in wanted.cluster.list_objects(CORE, resource)}
        except Forbidden:
            found.skip(f"names of {resource}", _NOT_ALLOWED)
            continue
        taken += [f"{what} `{name}`" for kind in wanted.pods for name in kind.names if name in there]
    if taken:
        more = f" and {len(taken) - 3} more" if len(taken) > 3 else ""  # noqa: PLR2004 - enough to find them
        title = f"names that the job needs are taken: {', '.join(taken[:3])}{more}"
        found.error(title, "name", hint="remove what has these names, or give the job another")
    else:
        found.good.append("names are free")


def the_references(wanted: Wanted, found: Checked) -> None:
    """Secrets and config maps with their keys, claims, service account, priority class."""
    looks: dict[str, Callable[[Wanted, Reference, Checked], bool]] = {
        "secret": _with_key("secrets"),
        "config map": _with_key("configmaps"),
        "claim": _claim,
        "service account": _whole(CORE, "serviceaccounts"),
        "priority class": _whole(api_objects.SCHEDULING_API_VERSION, "priorityclasses", namespaced=False),
    }
    good = 0
    for reference in pod_requirements.references(wanted.pods, wanted.spec):
        try:
            good += looks[reference.kind](wanted, reference, found)
        except Forbidden:
            found.skip(f"{reference.kind} `{reference.name}`", "not allowed to see it with these rights")
    if good:
        found.good.append(f"{plural(good, 'object')} of the spec found: secrets, config maps, claims, accounts and classes")


def _with_key(resource: str) -> Callable[[Wanted, Reference, Checked], bool]:
    def look(wanted: Wanted, reference: Reference, found: Checked) -> bool:
        there = wanted.cluster.get_object(CORE, resource, reference.name)
        if there is None:
            return _absent(wanted, reference, found)
        keys = {**(there.get("data") or {}), **(there.get("binaryData") or {})}
        if reference.key and reference.key not in keys:
            title = f"{reference.kind} `{reference.name}` has no key `{reference.key}`"
            found.error(title, reference.path, hint=f"it has {', '.join(f'`{key}`' for key in sorted(keys)) or 'none'}")
            return False
        return True

    return look


def _whole(group: str, resource: str, *, namespaced: bool = True) -> Callable[[Wanted, Reference, Checked], bool]:
    def look(wanted: Wanted, reference: Reference, found: Checked) -> bool:
        there = wanted.cluster.get_object(group, resource, reference.name, namespaced=namespaced)
        return bool(there) or _absent(wanted, reference, found)

    return look


def _claim(wanted: Wanted, reference: Reference, found: Checked) -> bool:
    there = wanted.cluster.get_object(CORE, "persistentvolumeclaims", reference.name)
    if there is None:
        return _absent(wanted, reference, found)
    modes = set((there.get("spec") or {}).get("accessModes") or ())
    if wanted.plan.nodes > 1 and not modes & _SHARED:
        title = f"claim `{reference.name}` can be mounted on one node only, and the job has {wanted.plan.nodes} pods"
        found.warning(
            title, reference.path, detail=f"access modes: {', '.join(sorted(modes))}", hint="use a claim with ReadWriteMany"
        )
    phase = (there.get("status") or {}).get("phase", "Pending")
    if phase == "Lost":
        found.error(
            f"claim `{reference.name}` has lost its volume", reference.path, hint=f"kubectl describe pvc {reference.name}"
        )
    elif phase != "Bound":
        title = f"claim `{reference.name}` has no volume yet"
        found.warning(
            title, reference.path, hint=f"it may get one when the first pod comes; `kubectl describe pvc {reference.name}`"
        )
    return True


def _absent(wanted: Wanted, reference: Reference, found: Checked) -> bool:
    where = "" if reference.kind == "priority class" else f" in namespace `{wanted.plan.namespace}`"
    found.error(f"there is no {reference.kind} `{reference.name}`{where}", reference.path, hint=_make(wanted, reference))
    return False


def _make(wanted: Wanted, reference: pod_requirements.Reference) -> str:
    where = f"kubectl -n {wanted.plan.namespace} create"
    literal = f" --from-literal={reference.key}=…" if reference.key else ""
    return {
        "secret": f"`{where} secret generic {reference.name}{literal}`",
        "config map": f"`{where} configmap {reference.name}{literal}`",
        "claim": "`manifests/storage/` has claims to begin with",
        "service account": f"`{where} serviceaccount {reference.name}`",
        "priority class": "`kubectl get priorityclasses` lists those that there are",
    }[reference.kind]


def the_queue(wanted: Wanted, found: Checked) -> None:
    """Kueue's, where the job is to wait in one."""
    queue, path = wanted.plan.scheduling.queue, "scheduling.queue"
    if not queue:
        return
    if api_objects.KUEUE_LOCAL_QUEUES not in wanted.cluster.list_resources(api_objects.KUEUE_API_VERSION):
        found.error(f"the job is for queue `{queue}`, and the cluster has no Kueue", path, hint="remove `scheduling.queue`")
        return
    there = wanted.cluster.get_object(api_objects.KUEUE_API_VERSION, api_objects.KUEUE_LOCAL_QUEUES, queue)
    if there is None:
        found.error(
            f"there is no queue `{queue}` in namespace `{wanted.plan.namespace}`", path, hint="`kubectl get localqueues`"
        )
        return
    conditions = (there.get("status") or {}).get("conditions") or ()
    inactive = [one for one in conditions if one.get("type") == "Active" and one.get("status") == "False"]
    if inactive:
        found.error(f"queue `{queue}` admits nothing: {inactive[0].get('message', 'it is not active')}", path)
    else:
        found.good.append(f"queue `{queue}`")


def the_quotas(wanted: Wanted, found: Checked) -> None:
    """All pods together against each quota of the namespace."""
    quotas = wanted.cluster.list_objects(CORE, "resourcequotas")
    adds = quota.usage(wanted.pods, wanted.objects)
    for one in quotas:
        name, spec = one["metadata"]["name"], one.get("spec") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            found.skip(f"quota `{name}`", "it is for some pods only, and which those are is not looked at")
            continue
        if over := list(quota.exceeded(one, adds)):
            hint = (
                f"`kubectl -n {wanted.plan.namespace} describe quota {name}`; lower `nodes` or `resources`, or stop other jobs"
            )
            found.error(f"the job does not fit in quota `{name}`", "resources", detail="\n".join(over), hint=hint)
        if unsaid := list(quota.unsaid(one, wanted.pods)) if not _has_defaults(wanted) else []:
            title = f"quota `{name}` wants every container to say what it uses"
            found.error(
                title, "resources", detail="\n".join(dict.fromkeys(unsaid)), hint="say `resources.cpu` and `resources.memory`"
            )
    found.good.append(plural(len(quotas), "quota") if quotas else "no quota limits the namespace")


def _has_defaults(wanted: Wanted) -> bool:
    """Whether a LimitRange says for a container what it does not say itself."""
    ranges = wanted.cluster.list_objects(CORE, "limitranges")
    items = (item for one in ranges for item in (one.get("spec") or {}).get("limits") or ())
    return any(item.get("type") == "Container" and (item.get("default") or item.get("defaultRequest")) for item in items)


def the_objects(wanted: Wanted, found: Checked) -> None:
    """The job and what comes with it, gone through by the API server and the operator's webhook."""
    for one in wanted.objects:
        kind, name = one["kind"], one["metadata"]["name"]
        group, resource = (
            (api_objects.PYTORCHJOB_API_VERSION, api_objects.PYTORCHJOBS)
            if kind == api_objects.PYTORCHJOB
            else (CORE, f"{kind.lower()}s")
        )
        try:
            wanted.cluster.dry_run_create(group, resource, one)
        except AlreadyExists:
            continue  # the names have been looked at
        except Refused as err:
            found.error(err.title, detail=err.cause or "", hint=err.hint or "")
        else:
            found.good.append(f"the API server would take {kind} `{name}`")


def the_pods(wanted: Wanted, found: Checked) -> None:
    """One pod of each kind, gone through by all that stands before a pod: limit ranges, quotas, pod security, webhooks."""
    for kind in wanted.pods:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**kind.metadata, "name": kind.names[0], "namespace": wanted.plan.namespace},
            "spec": {"restartPolicy": "Never", **kind.spec},
        }
        try:
            wanted.cluster.dry_run_create(CORE, "pods", body)
        except AlreadyExists:
            continue
        except Refused as err:
            cause = err.cause or ""
            if not (_KNOWN_OTHERWISE.search(cause) and found.problems):
                found.error(f"the cluster would not take pod `{kind.names[0]}`", detail=cause, hint=err.hint or "")
        else:
            found.good.append(f"the API server would take pod `{kind.names[0]}`")


def the_nodes(wanted: Wanted, found: Checked) -> None:
    """Whether every pod finds a node, and one sentence why not."""
    nodes = [fit.node_of(node) for node in wanted.cluster.list_objects(CORE, "nodes", namespaced=False) if is_ready(node)]
    try:
        fit.occupy(nodes, wanted.cluster.list_objects(CORE, "pods", namespaced=False))
    except Forbidden:
        found.skip("what other pods take of the nodes", _NOT_ALLOWED)
    misfits = fit.misfits(nodes, wanted.pods)
    for misfit in misfits:
        if misfit.is_full:
            hint = "the job will wait until other pods have ended"
            found.warning(f"no node is free for pod `{misfit.pod}`", "resources", detail=misfit.why, hint=hint)
        else:
            hint = "change `resources`, `instance` or `scheduling`, unless an autoscaler brings such nodes"
            found.error(f"no node can hold pod `{misfit.pod}`", "resources", detail=misfit.why, hint=hint)
    if not misfits:
        found.good.append(
            f"{plural(sum(len(kind.names) for kind in wanted.pods), 'pod')} fit, {plural(len(nodes), 'ready node')}"
        )


CHECKS: dict[str, Callable[[Wanted, Checked], None]] = {
    "names": the_names,
    "secrets, config maps, claims, accounts and classes": the_references,
    "queue": the_queue,
    "quotas": the_quotas,
    "nodes": the_nodes,
    "job": the_objects,
    "pods": the_pods,
}


def check(wanted: Wanted, found: Checked) -> None:
    """All of it; a check that the rights do not allow is said to be left out."""
    for what, look in CHECKS.items():
        try:
            look(wanted, found)
        except Forbidden as err:
            found.skip(what, err.title)
        except Unreachable:
            raise  # nothing further can be asked
        except KfjobError as err:
            found.error(err.title, detail=err.cause or "", hint=err.hint or "")


__all__ = ["CHECKS", "Wanted", "check"]
