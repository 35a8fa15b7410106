"""JobPlan -> the objects that `render` shows and `submit` sends.

The keys have the order in which people read them. Empty lists are left out: the operator panics on `rdzvConf: []` (v1.9.3,
elastic.go).
"""

from __future__ import annotations

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.kinds import etcd
from kfjob.kinds import pod_template as pod
from kfjob.kinds.job_metadata import compile_metadata
from kfjob.kinds.pytorchjob import operator_api, schema
from kfjob.objects.merge import merge
from kfjob.plan import JobPlan
from kfjob.validation.field_paths import join_path


def compile_manifests(plan: JobPlan) -> list[JsonObject]:
    """Return all objects of a job, the PyTorchJob first."""
    return [compile_pytorchjob(plan), *(etcd.compile_etcd(plan) if plan.own_etcd_image else ())]


def compile_pytorchjob(plan: JobPlan) -> JsonObject:
    """Return the PyTorchJob after the spec's overrides were merged into it."""
    job: JsonObject = {
        "apiVersion": operator_api.API_VERSION,
        "kind": operator_api.KIND,
        "metadata": compile_metadata(plan),
        "spec": {
            "nprocPerNode": plan.processes_per_node,
            "runPolicy": _run_policy(plan),
            **({"elasticPolicy": _elastic_policy(plan)} if plan.spec.is_dynamic else {}),
            "pytorchReplicaSpecs": _replicas(plan),
        },
    }
    overrides = plan.spec.overrides
    return merge(job, schema.quote_override_fractions(overrides)) if overrides else job


def find_override_problems(overrides: JsonMapping) -> list[Problem]:
    """Return the overrides that a PyTorchJob does not have, and those with a value of another type."""
    if not overrides:
        return []
    found = schema.find_override_problems(schema.quote_override_fractions(overrides))
    problems = ((join_path(("overrides", *path)), message) for path, message in found)
    return [Problem(title=f"`{path}` {message}", path=path) for path, message in problems]


def find_plan_problems(plan: JobPlan) -> list[Problem]:
    """Return what is wrong with the overrides of a plan, or with the PyTorchJob that they leave."""
    if not plan.spec.overrides:
        return []
    return find_override_problems(plan.spec.overrides) or [
        Problem(title=f"`{'.'.join(['spec', *map(str, path)])}` {message}, after `overrides` were merged", path="overrides")
        for path, message in schema.find_problems(compile_pytorchjob(plan).get("spec"))
    ]


def _run_policy(plan: JobPlan) -> JsonObject:
    run = plan.spec.run
    policy = {"cleanPodPolicy": run.clean_pods}
    fields = {
        "activeDeadlineSeconds": run.deadline,
        "backoffLimit": run.backoff_limit,
        "ttlSecondsAfterFinished": run.ttl,
        "suspend": run.suspend or None,
        "schedulingPolicy": _gang(plan),
    }
    return policy | {key: value for key, value in fields.items() if value is not None}


def _gang(plan: JobPlan) -> JsonObject | None:
    if (gang := plan.scheduling.gang) is None:
        return None
    fields = {
        "minAvailable": gang.min_available or plan.spec.nodes,
        "queue": gang.queue,
        "priorityClass": gang.priority_class,
        "scheduleTimeoutSeconds": gang.timeout,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _replicas(plan: JobPlan) -> JsonObject:
    workers = plan.spec.nodes - plan.spec.has_master
    roles = (("Master", int(plan.spec.has_master), plan.get_role(0)), ("Worker", workers, plan))
    return {
        kind: {"replicas": count, "restartPolicy": role.restarts.policy, "template": pod.compile_pod_template(role)}
        for kind, count, role in roles
        if count
    }


def _elastic_policy(plan: JobPlan) -> JsonObject:
    rendezvous = plan.rendezvous
    policy: JsonObject = {
        "minReplicas": plan.spec.min_nodes,
        "maxReplicas": plan.spec.max_nodes,
        "rdzvBackend": rendezvous.backend,
        "rdzvHost": rendezvous.host,
        "rdzvPort": rendezvous.port,
        "rdzvId": rendezvous.id,
        "maxRestarts": plan.restarts.max,
    }
    if rendezvous.conf:
        policy["rdzvConf"] = [{"key": key, "value": value} for key, value in rendezvous.conf]
    if plan.spec.elastic and plan.spec.elastic.metrics:
        policy["metrics"] = [dict(metric) for metric in plan.spec.elastic.metrics]
    return policy
