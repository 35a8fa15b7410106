"""Check what a job needs of a cluster, without creating anything."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from kfjob.api.capacity import fit
from kfjob.api.capacity.nodes import find_missing_nodes, read_nodes
from kfjob.api.capacity.pod_requirements import Reference, find_references
from kfjob.api.capacity.queues import explain_ignored, ignores_queue
from kfjob.api.preflight import quota
from kfjob.api.preflight.job_name import check_job_name
from kfjob.api.preflight.result import CheckResults
from kfjob.api.prepared import PreparedJob
from kfjob.backends.base import Inventory, find_api_version
from kfjob.backends.resources import CORE, get_resource
from kfjob.base.errors import AlreadyExists, Forbidden, KfjobError, Refused, Unreachable
from kfjob.base.text import join_names, plural
from kfjob.kinds.base import PodTemplate
from kfjob.kinds.registry import get_job, get_kind, is_job
from kfjob.objects import api_objects
from kfjob.objects.api_objects import describe_name
from kfjob.plan import JobPlan

_SHARED_ACCESS_MODES = {"ReadWriteMany", "ReadOnlyMany"}
_REPORTED_ELSEWHERE = re.compile(r"exceeded quota|error looking up service account|no PriorityClass with name")
"""Causes in the dry run of a pod that other checks report."""


class PreflightJob(Struct, frozen=True, kw_only=True):
    """The job to check, and its cluster."""

    prepared: PreparedJob
    pods: tuple[PodTemplate, ...]
    cluster: Inventory

    @property
    def plan(self) -> JobPlan:
        """The plan of the job."""
        return self.prepared.plan


_REFERENCE_KINDS = {
    "ConfigMap": "config map",
    "PersistentVolumeClaim": "claim",
    "Secret": "secret",
    "ServiceAccount": "service account",
}
"""The references that objects of these kinds satisfy, if they are created with the job."""

ReferenceCheck = Callable[[PreflightJob, Reference, CheckResults], bool]


def check_names(job: PreflightJob, results: CheckResults) -> None:
    """Check that the names of the job, its pods and its services are free."""
    if not check_job_name(job.prepared, results):
        return
    taken: list[str] = []
    for resource, noun in (("pods", "pod"), ("services", "service")):
        try:
            existing = {item["metadata"]["name"] for item in job.cluster.list_objects(CORE, resource)}
        except Forbidden:
            results.skip(f"names of {resource}", f"not allowed to list {resource}")
            continue
        taken += [f"{noun} `{pod}`" for template in job.pods for pod in template.names if pod in existing]
    if taken:
        hint = "remove these objects, or give the job another name"
        results.error(f"names that the job needs are taken: {join_names(taken, limit=3)}", "name", hint=hint)
    else:
        results.ok("names are free")


def check_references(job: PreflightJob, results: CheckResults) -> None:
    """Check secrets and config maps with their keys, claims, service accounts and priority classes."""
    checks: dict[str, ReferenceCheck] = {
        "secret": _key_check("secrets"),
        "config map": _key_check("configmaps"),
        "claim": _check_claim,
        "service account": _existence_check(CORE, "serviceaccounts"),
        "priority class": _existence_check(api_objects.SCHEDULING_API_VERSION, "priorityclasses", namespaced=False),
    }
    passed = 0
    created = {(_REFERENCE_KINDS.get(item["kind"]), item["metadata"].get("name")) for item in job.prepared.objects}
    for reference in find_references(job.pods, job.prepared.spec):
        if (reference.kind, reference.name) in created:
            continue
        try:
            passed += checks[reference.kind](job, reference, results)
        except Forbidden:
            results.skip(f"{reference.kind} `{reference.name}`", "not allowed to read it")
    if passed:
        results.ok(f"{plural(passed, 'referenced object')} found: secrets, config maps, claims, accounts and classes")


def check_runtime(job: PreflightJob, results: CheckResults) -> None:
    """Check the runtime of Kubeflow Trainer that the job shares with others."""
    name = job.prepared.spec.runtime
    if not name:
        return
    try:
        manifest = get_job(job.prepared.objects)
        problems = list(get_kind(manifest).find_runtime_problems(manifest, job.cluster.get_object))
    except Forbidden:
        results.skip(f"runtime `{name}`", "not allowed to read it")
        return
    results.problems += problems
    if not problems:
        results.ok(f"runtime `{name}` found")


def _key_check(resource: str) -> ReferenceCheck:
    def check(job: PreflightJob, reference: Reference, results: CheckResults) -> bool:
        content = job.cluster.get_object(CORE, resource, reference.name)
        if content is None:
            return _report_missing(job, reference, results)
        keys = {**(content.get("data") or {}), **(content.get("binaryData") or {})}
        if reference.key and reference.key not in keys:
            title = f"{reference.kind} `{reference.name}` has no key `{reference.key}`"
            hint = f"its keys are {', '.join(f'`{key}`' for key in sorted(keys))}" if keys else "it has no keys"
            results.error(title, reference.path, hint=hint)
            return False
        return True

    return check


def _existence_check(group: str, resource: str, *, namespaced: bool = True) -> ReferenceCheck:
    def check(job: PreflightJob, reference: Reference, results: CheckResults) -> bool:
        exists = job.cluster.get_object(group, resource, reference.name, namespaced=namespaced)
        return bool(exists) or _report_missing(job, reference, results)

    return check


def _check_claim(job: PreflightJob, reference: Reference, results: CheckResults) -> bool:
    claim = job.cluster.get_object(CORE, "persistentvolumeclaims", reference.name)
    if claim is None:
        return _report_missing(job, reference, results)
    name, path = reference.name, reference.path
    modes = set((claim.get("spec") or {}).get("accessModes") or ())
    if job.plan.spec.nodes > 1 and not modes & _SHARED_ACCESS_MODES:
        title = f"claim `{name}` can be mounted on one node only, and the job has {job.plan.spec.nodes} pods"
        detail = f"access modes: {', '.join(sorted(modes))}"
        results.warning(title, path, detail=detail, hint="use a claim with ReadWriteMany")
    phase = (claim.get("status") or {}).get("phase", "Pending")
    if phase == "Lost":
        results.error(f"claim `{name}` has lost its volume", path, hint=f"`kubectl describe pvc {name}`")
    elif phase != "Bound":
        hint = f"Kubernetes may bind one when the first pod starts; `kubectl describe pvc {name}`"
        results.warning(f"claim `{name}` has no volume yet", path, hint=hint)
    return True


def _report_missing(job: PreflightJob, reference: Reference, results: CheckResults) -> bool:
    scope = "" if reference.kind == "priority class" else f" in namespace `{job.plan.namespace}`"
    title = f"{reference.kind} `{reference.name}` does not exist{scope}"
    results.error(title, reference.path, hint=_creation_hint(job, reference))
    return False


def _creation_hint(job: PreflightJob, reference: Reference) -> str:
    command = f"kubectl -n {job.plan.namespace} create"
    literal = f" --from-literal={reference.key}=…" if reference.key else ""
    return {
        "secret": f"`{command} secret generic {reference.name}{literal}`",
        "config map": f"`{command} configmap {reference.name}{literal}`",
        "claim": "`manifests/storage/` has examples of claims",
        "service account": f"`{command} serviceaccount {reference.name}`",
        "priority class": "`kubectl get priorityclasses` lists the existing classes",
    }[reference.kind]


def check_queue(job: PreflightJob, results: CheckResults) -> None:
    """Check the Kueue queue, if the job has one."""
    name, path = job.plan.scheduling.queue, "scheduling.queue"
    if not name:
        return
    kueue = find_api_version(job.cluster, api_objects.KUEUE_API_VERSIONS, api_objects.KUEUE_LOCAL_QUEUES)
    if kueue is None:
        results.error(f"the job uses queue `{name}`, but the cluster has no Kueue", path, hint="remove `scheduling.queue`")
        return
    queue = job.cluster.get_object(kueue, api_objects.KUEUE_LOCAL_QUEUES, name)
    if queue is None:
        title = f"queue `{name}` does not exist in namespace `{job.plan.namespace}`"
        results.error(title, path, hint="`kubectl get localqueues`")
        return
    conditions = (queue.get("status") or {}).get("conditions") or ()
    inactive = [item for item in conditions if item.get("type") == "Active" and item.get("status") == "False"]
    if inactive:
        results.error(f"queue `{name}` admits no jobs: {inactive[0].get('message', 'it is not active')}", path)
        return
    manifest = get_job(job.prepared.objects)
    kind = get_kind(manifest)
    if ignores_queue(job.cluster, kind, manifest):
        title, hint = explain_ignored(kind)
        results.error(title, path, hint=hint)
        return
    if problem := _find_topology_problem(job, kueue):
        results.error(problem, "scheduling.topology", hint="`kubectl get topologies.kueue.x-k8s.io -o yaml` shows the levels")
    else:
        results.ok(f"queue `{name}`")


def check_gang(job: PreflightJob, results: CheckResults) -> None:
    """Check that the cluster has the gang scheduler of the job: without one, nothing makes its pods."""
    gang = job.plan.scheduling.gang
    if gang is None:
        return
    if api_objects.POD_GROUPS in job.cluster.list_resources(api_objects.POD_GROUP_VERSIONS[gang.scheduler]):
        results.ok(f"gang scheduler `{gang.scheduler}`")
    else:
        hint = "remove `scheduling.gang`, or have it installed (docs/guides/queues.md)"
        results.error(f"the cluster does not have the gang scheduler `{gang.scheduler}`", "scheduling.gang", hint=hint)


def _find_topology_problem(job: PreflightJob, kueue: str) -> str:
    """Return that no Topology of the cluster has the level that the job asks for; "" if one has, or nobody may say."""
    topology = job.plan.scheduling.topology
    if topology is None:
        return ""
    try:
        listed = job.cluster.list_objects(kueue, api_objects.KUEUE_TOPOLOGIES, namespaced=False)
    except Forbidden:
        return ""
    levels = {level.get("nodeLabel") for item in listed for level in (item.get("spec") or {}).get("levels") or ()}
    return "" if topology.level in levels else f"no Topology of the cluster has the level `{topology.level}`"


def check_quotas(job: PreflightJob, results: CheckResults) -> None:
    """Check all pods together against each quota of the namespace."""
    quotas = job.cluster.list_objects(CORE, "resourcequotas")
    usage = quota.sum_usage(job.pods, job.prepared.objects)
    for item in quotas:
        name, spec = item["metadata"]["name"], item.get("spec") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            results.skip(f"quota `{name}`", "it has scopes, which kfjob does not evaluate")
            continue
        if exceeded := list(quota.explain_exceeded(item, usage)):
            describe = f"kubectl -n {job.plan.namespace} describe quota {name}"
            hint = f"`{describe}`; lower `nodes` or `resources`, or stop other jobs"
            results.error(f"the job does not fit in quota `{name}`", "resources", detail="\n".join(exceeded), hint=hint)
    results.ok(plural(len(quotas), "quota") if quotas else "no quota limits the namespace")


def check_manifests(job: PreflightJob, results: CheckResults) -> None:
    """Send all manifests as a dry run to the API server and the operator's webhook."""
    for manifest in job.prepared.objects:
        kind, name = manifest["kind"], describe_name(manifest)
        try:
            job.cluster.dry_run_create(manifest["apiVersion"], get_resource(manifest), manifest)
        except AlreadyExists:
            continue  # `check_names` reports it
        except Refused as err:
            if not (is_job(manifest) and get_kind(manifest).lacks_only_prerequisite(manifest, err.cause or "")):
                results.error(err.title, detail=err.cause or "", hint=err.hint or "")
                continue
        results.ok(f"the API server accepts {kind} `{name}`")


def check_pods(job: PreflightJob, results: CheckResults) -> None:
    """Send one pod of each template as a dry run through pod admission: limit ranges, quotas, pod security, webhooks."""
    for template in job.pods:
        name = template.names[0]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template.metadata, "name": name, "namespace": job.plan.namespace},
            "spec": {"restartPolicy": "Never", **template.spec},
        }
        try:
            job.cluster.dry_run_create(CORE, "pods", body)
        except AlreadyExists:
            continue
        except Refused as err:
            cause = err.cause or ""
            if not (_REPORTED_ELSEWHERE.search(cause) and results.problems):
                results.error(f"the cluster refuses pod `{name}`", detail=cause, hint=err.hint or "")
        else:
            results.ok(f"the API server accepts pod `{name}`")


def check_nodes(job: PreflightJob, results: CheckResults) -> None:
    """Check whether every pod fits on a node, and explain why not."""
    nodes = read_nodes(job.cluster)
    if missing := find_missing_nodes(job.cluster, nodes, job.pods):
        results.problems += missing
        return
    try:
        fit.add_existing_pods(nodes, job.cluster.list_objects(CORE, "pods", namespaced=False))
    except Forbidden:
        results.skip("resources that other pods use", "not allowed to list the pods of all namespaces")
    misfits = fit.find_misfits(nodes, job.pods)
    for misfit in misfits:
        hint = "the job will wait until other pods have ended"
        results.warning(f"no node has room for pod `{misfit.pod}` now", "resources", detail=misfit.reason, hint=hint)
    if not misfits:
        pods = sum(len(template.names) for template in job.pods)
        results.ok(f"{plural(pods, 'pod')} can be scheduled on {plural(len(nodes), 'ready node')}")


CHECKS: dict[str, Callable[[PreflightJob, CheckResults], None]] = {
    "names": check_names,
    "secrets, config maps, claims, accounts and classes": check_references,
    "runtime": check_runtime,
    "queue": check_queue,
    "gang": check_gang,
    "quotas": check_quotas,
    "nodes": check_nodes,
    "job": check_manifests,
    "pods": check_pods,
}


def check_cluster(job: PreflightJob, results: CheckResults) -> None:
    """Run all checks and add to the results; a check that the user's rights do not allow is skipped.

    Raises:
        Unreachable: the API server does not answer.
    """
    for name, check in CHECKS.items():
        try:
            check(job, results)
        except Forbidden as err:
            results.skip(name, err.title)
        except Unreachable:
            raise
        except KfjobError as err:
            results.error(err.title, detail=err.cause or "", hint=err.hint or "")
