"""JobPlan -> the TrainJob, and the TrainingRuntime that has everything of a pod that a TrainJob cannot say.

The runtime has no policy for torch: kfjob sets the variables of torchrun itself, the same as on a PyTorchJob. Trainer's own
policy knows one static rendezvous at a fixed port, and no elastic agents. A spec with `runtime` gets no runtime of its own.
"""

from __future__ import annotations

from kfjob.base.common_types import JsonObject
from kfjob.kinds import etcd
from kfjob.kinds.job_metadata import compile_metadata
from kfjob.kinds.pod_template import compile_pod_template, own_labels
from kfjob.kinds.trainjob import trainer_api
from kfjob.kinds.trainjob.shared_runtime import RuntimeRef, make_patch, parse_runtime
from kfjob.plan import JobPlan
from kfjob.plan.agent import operator_environment
from kfjob.spec.scheduling import Gang

_RANK = {"fieldRef": {"fieldPath": f"metadata.annotations['{trainer_api.INDEX}']"}}
_RANK_VARIABLES = ("RANK", "PET_NODE_RANK")
MAX_BACKOFF = 2**31 - 1
"""Most restarts that a Job can have. A PyTorchJob without a limit restarts its pods forever."""


def compile_manifests(plan: JobPlan) -> list[JsonObject]:
    """Return all objects of a job; the runtime is first, because `kubectl apply` creates the objects in this order."""
    template = compile_pod_template(plan)
    (container,) = template["spec"]["containers"]
    container["name"] = trainer_api.NODE
    trainer = {field: container.pop(name) for field, name in trainer_api.TRAINER_FIELDS.items() if name in container}
    trainer["env"] = [*trainer.get("env", ()), *_list_variables(plan)]
    if plan.spec.runtime:
        job = _compile_trainjob(plan, trainer, parse_runtime(plan.spec.runtime))
        job["spec"]["runtimePatches"] = [make_patch(template)]
        return [job]
    own_etcd = etcd.compile_etcd(plan) if plan.own_etcd_image else []
    own = RuntimeRef(trainer_api.RUNTIME_KIND, plan.name)
    return [_compile_runtime(plan, template), _compile_trainjob(plan, trainer, own), *own_etcd]


def _compile_trainjob(plan: JobPlan, trainer: JsonObject, runtime: RuntimeRef) -> JsonObject:
    run, processes = plan.spec.run, plan.processes_per_node
    counts: JsonObject = {"numNodes": plan.spec.nodes}
    if processes.isdecimal():
        counts["numProcPerNode"] = int(processes)
    spec: JsonObject = {
        "runtimeRef": {"apiGroup": trainer_api.GROUP, "kind": runtime.kind, "name": runtime.name},
        "trainer": counts | trainer,
    }
    if run.suspend:
        spec["suspend"] = True
    if run.deadline is not None:
        spec["activeDeadlineSeconds"] = run.deadline
    return {
        "apiVersion": trainer_api.API_VERSION,
        "kind": trainer_api.KIND,
        "metadata": compile_metadata(plan),
        "spec": spec,
    }


def _compile_runtime(plan: JobPlan, template: JsonObject) -> JsonObject:
    restarts = plan.restarts.policy != "Never"
    limit = plan.spec.run.backoff_limit if plan.spec.run.backoff_limit is not None else MAX_BACKOFF
    template["spec"]["restartPolicy"] = plan.restarts.policy
    node: JsonObject = {
        "name": trainer_api.NODE,
        "template": {
            "metadata": {"labels": {trainer_api.LABEL_ANCESTOR: trainer_api.ANCESTOR}},
            "spec": {"backoffLimit": limit if restarts else 0, "template": template},
        },
    }
    spec: JsonObject = {"mlPolicy": {"numNodes": plan.spec.nodes}, "template": {"spec": {"replicatedJobs": [node]}}}
    if gang := plan.scheduling.gang:
        template["spec"].setdefault("schedulerName", trainer_api.GANG_SCHEDULERS[gang.scheduler])
        _add_gang(spec, gang)
    return {
        "apiVersion": trainer_api.API_VERSION,
        "kind": trainer_api.RUNTIME_KIND,
        "metadata": {
            "name": plan.name,
            "namespace": plan.namespace,
            "labels": {trainer_api.LABEL_FRAMEWORK: "torch", **own_labels(plan)},
        },
        "spec": spec,
    }


def _add_gang(runtime: JsonObject, gang: Gang) -> None:
    """Add the policy with which Trainer makes the pod group of the job to the spec of its runtime."""
    policy: JsonObject = {}
    if gang.scheduler == "volcano":
        policy["volcano"] = {}
        if gang.queue:
            runtime["template"]["metadata"] = {"annotations": {trainer_api.ANNOTATION_VOLCANO_QUEUE: gang.queue}}
    else:
        policy["coscheduling"] = {} if gang.timeout is None else {"scheduleTimeoutSeconds": gang.timeout}
    runtime["podGroupPolicy"] = policy


def _list_variables(plan: JobPlan) -> list[JsonObject]:
    """Return the variables that the training operator sets for the same plan, but for those that an existing runtime sets.

    The node rank is the completion index.
    """
    variables = operator_environment(plan)
    if plan.spec.runtime:
        variables = {name: value for name, value in variables.items() if name not in trainer_api.RESERVED_VARIABLES}
        if "MASTER_PORT" in variables:
            variables["MASTER_PORT"] = str(trainer_api.MASTER_PORT)
    return [
        {"name": name, "valueFrom": _RANK} if name in _RANK_VARIABLES else {"name": name, "value": value}
        for name, value in variables.items()
    ]
