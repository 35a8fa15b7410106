"""TrainJobs of Kubeflow Trainer (v2.3), as a kind of job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.joblog.events import JobChanged, JobPhase, ReportedProgress
from kfjob.kinds.base import JobKind, PodTemplate, ReadObject, Replica, permit, read_conditions
from kfjob.kinds.trainjob import trainer_api
from kfjob.objects.names import etcd_name
from kfjob.objects.reading import get_label, get_launch, parse_time

if TYPE_CHECKING:
    from kfjob.base.errors import Problem
    from kfjob.joblog.observe_config import ObserveConfig
    from kfjob.plan import JobPlan

_PHASES = {"Complete": JobPhase.SUCCEEDED, "Failed": JobPhase.FAILED, "Suspended": JobPhase.SUSPENDED}
MAX_METRICS = 256
"""The API server accepts no more."""
_INDEX = r"[0-9]{1,6}"


class TrainJob(JobKind):
    """Implements `JobKind`. The pods belong to a Job of a JobSet of the TrainJob, and node rank 0 is the master."""

    name = trainer_api.KIND
    api_version = trainer_api.API_VERSION
    resource = trainer_api.RESOURCE
    controller = "Kubeflow Trainer"
    install_command = "kubectl apply --server-side -k manifests/trainer"
    controller_labels = "app.kubernetes.io/name=trainer,app.kubernetes.io/component=manager"
    training_container = trainer_api.NODE
    prerequisites = MappingProxyType({trainer_api.RUNTIME_KIND: trainer_api.RUNTIME_RESOURCE})
    pod_suffix = re.compile(r"node-0(?:-\d+(?:-[a-z0-9]{5})?)?")  # also the name of the Job
    named_after_job = frozenset({"JobSet"})
    is_scalable = False
    runs_when_all_pods_do = True
    deletion = "Background"  # the webhook refuses every change of a TrainJob without its runtime, also that of its finalizers
    permissions = (
        *permit(
            ("create", "get", "list", "watch", "update", "patch", "delete"),
            trainer_api.RESOURCE,
            group=trainer_api.GROUP,
        ),
        *permit(("create", "get", "list", "patch", "delete"), trainer_api.RUNTIME_RESOURCE, group=trainer_api.GROUP),
        *permit(("get", "list", "watch"), "pods"),
        *permit(("get",), "pods", subresource="log"),
    )
    useful_permissions = (
        *permit(("create",), "pods"),
        *permit(("create",), "services"),
        *permit(("list",), "events"),
    )

    @property
    def shape(self) -> Any:
        """The fields that kfjob reads."""
        from kfjob.kinds.trainjob.shape import TrainJobShape

        return TrainJobShape

    def compile(self, plan: JobPlan) -> list[JsonObject]:
        """Return the TrainJob, its TrainingRuntime, and the service and the pod of its own etcd."""
        from kfjob.kinds.trainjob.manifest import compile_manifests

        return compile_manifests(plan)

    def find_override_problems(self, overrides: JsonMapping) -> Iterator[Problem]:
        """Yield that overrides are parts of a PyTorchJob."""
        from kfjob.base.errors import Problem

        if overrides:
            hint = "use the fields of the spec, or set `target: pytorchjob`"
            yield Problem(title="`overrides` are parts of a PyTorchJob, and this is a TrainJob", path="overrides", hint=hint)

    def find_plan_problems(self, plan: JobPlan) -> Iterator[Problem]:
        """Yield what a TrainJob cannot express."""
        from kfjob.kinds.trainjob.limits import find_plan_problems

        yield from self.find_override_problems(plan.spec.overrides)
        yield from find_plan_problems(plan)

    def name_hosts(self, job: str, nodes: int, /, *, master: bool) -> tuple[str, ...]:  # noqa: ARG002 - the master is node 0
        """Return the host names of the pods in the headless service that JobSet makes."""
        return tuple(trainer_api.name_host(job, index) for index in range(nodes))

    def read_pod_templates(self, job: JsonMapping, others: Iterable[JsonMapping] = ()) -> list[PodTemplate]:
        """Return the template of the TrainingRuntime with what the TrainJob's `trainer` replaces in it."""
        spec, name = job.get("spec") or {}, job["metadata"]["name"]
        trainer = spec.get("trainer") or {}
        runtime = next((item for item in others if item["kind"] == trainer_api.RUNTIME_KIND), {})
        template, path = _find_template(runtime) if runtime else _find_patch(job)
        pod = template.get("spec") or {}
        containers = pod.get("containers") or [{"name": trainer_api.NODE}]
        own = {field: trainer[key] for key, field in trainer_api.TRAINER_FIELDS.items() if trainer.get(key) is not None}
        merged = [item | own if item.get("name") == trainer_api.NODE else item for item in containers]
        return [
            PodTemplate(
                names=tuple(trainer_api.name_pod(name, index) for index in range(_count_nodes(job))),
                metadata=template.get("metadata") or {},
                spec={**pod, "containers": merged},
                role="Worker",
                training_container=self.training_container,
                path=path,
            )
        ]

    def find_runtime_problems(self, job: JsonMapping, read: ReadObject) -> Iterator[Problem]:
        """Yield what is wrong with the runtime that the job shares with others."""
        from kfjob.kinds.trainjob.shared_runtime import find_runtime_problems

        yield from find_runtime_problems(job, read)

    def read_state(self, job: JsonMapping, *, now: int) -> JobChanged:
        """Return the state of the conditions; a job without one runs when all of its pods are ready."""
        state, status = read_conditions(job, _PHASES, now=now), job.get("status") or {}
        state = replace(state, reported=_read_report(status.get("trainerStatus")))
        jobs = status.get("jobsStatus") or ()
        is_running = any(one.get("ready") for one in jobs if one.get("name") == trainer_api.NODE)
        if state.phase is JobPhase.PENDING and is_running:
            state = replace(state, phase=JobPhase.RUNNING)
        return replace(state, started=_find_start(job)) if jobs and state.phase is not JobPhase.SUSPENDED else state

    def select_pods(self, job: str) -> str:
        """Return the selector of JobSet's labels; pods of a runtime that fetch data or a model before do not train."""
        return f"{trainer_api.LABEL_JOBSET}={job},{trainer_api.LABEL_REPLICATED_JOB}={trainer_api.NODE}"

    def read_replica(self, pod: JsonMapping) -> Replica:
        """Return what the Job's label says: the completion index is the node rank."""
        label = get_label(pod, trainer_api.INDEX)
        index = int(label) if re.fullmatch(_INDEX, label) else 0
        return Replica("Worker", index, trainer_api.name_host(get_label(pod, trainer_api.LABEL_JOBSET), index))

    def read_observe_config(self, job: JsonMapping, *, progress: str | None = None) -> ObserveConfig:
        """Return what the manifest shows: its pods, and the length of its run."""
        from kfjob.joblog.observe_config import MAX_NODES, ObserveConfig
        from kfjob.shell.run_length import find_run_length

        trainer = (job.get("spec") or {}).get("trainer") or {}
        length = find_run_length([*(trainer.get("command") or ()), *(trainer.get("args") or ())])
        variables = _read_variables(job)
        return ObserveConfig(
            workers=self.name_hosts(job["metadata"]["name"], min(_count_nodes(job), MAX_NODES), master=False),
            rendezvous=variables.get("PET_RDZV_BACKEND") or "",
            expected_steps=length.steps,
            expected_epochs=length.epochs,
            progress_pattern=progress,
        )

    def find_store(self, job: JsonMapping) -> str:
        """Return the name of the job's own etcd, which its agents meet in."""
        host, name = _read_variables(job).get("PET_RDZV_ENDPOINT", "").partition(":")[0], etcd_name(job["metadata"]["name"])
        return host if host == name else ""

    def find_job_id(self, item: JsonMapping) -> str:
        """Return the launch of a pod, or the name of a TrainJob that kfjob did not submit: its pods do not know its uid."""
        return get_launch(item) or get_label(item, trainer_api.LABEL_JOBSET)

    def identify(self, *, name: str, uid: str, launch: str) -> str:  # noqa: ARG002 - the pods do not know it
        """Return the launch, or the name of a TrainJob that kfjob did not submit."""
        return launch or name

    def will_have_pod(self, job: JsonMapping, pod: str) -> bool:
        """Return whether the Job has created or will create a pod of this name; the end of the name is random."""
        return super().will_have_pod(job, pod.rpartition("-")[0])

    def adopt_live_fields(self, job: JsonObject, live: JsonMapping) -> JsonObject:
        """Return the job with the patches of others, such as Kueue, and the time that the webhook adds to kfjob's own."""
        own = {patch["manager"]: patch for patch in job["spec"].get("runtimePatches") or ()}
        patches = {patch["manager"]: patch for patch in (live.get("spec") or {}).get("runtimePatches") or ()}
        if not own:
            patches.pop(trainer_api.PATCH_MANAGER, None)
        merged = [patches.get(manager, {}) | own.get(manager, {}) for manager in patches | own]
        return {**job, "spec": {**job["spec"], "runtimePatches": merged}} if merged else job

    def refuses_change(self, refusal: str) -> bool:
        """Return whether a TrainJob cannot take the change while it exists, or while it runs."""
        return any(words in refusal for words in trainer_api.IMMUTABLE)

    def lacks_only_prerequisite(self, job: JsonMapping, refusal: str) -> bool:
        """Return whether the webhook misses the TrainingRuntime that kfjob makes for the job."""
        reference = (job.get("spec") or {}).get("runtimeRef") or {}
        own = (trainer_api.RUNTIME_KIND, job["metadata"]["name"])
        return (reference.get("kind"), reference.get("name")) == own and trainer_api.RUNTIME_MISSING in refusal

    def is_suspended(self, job: JsonMapping) -> bool:
        """Return `spec.suspend`."""
        return bool((job.get("spec") or {}).get("suspend"))

    def changes_in_place(self, path: str) -> bool:
        """Return whether a TrainJob accepts the change."""
        return path.startswith(("metadata", "spec.suspend"))

    def make_invalid(self, namespace: str) -> JsonObject:
        """Return a TrainJob without a runtime."""
        reference = {"kind": trainer_api.RUNTIME_KIND, "name": "kfjob-doctor-has-none"}
        return {
            "apiVersion": self.api_version,
            "kind": self.name,
            "metadata": {"name": "kfjob-doctor", "namespace": namespace},
            "spec": {"runtimeRef": reference},
        }


def _find_start(job: JsonMapping) -> int | None:
    """Return when the job was resumed, else when it was created: Trainer makes its JobSet at once."""
    resumed = (one for one in job["status"].get("conditions") or () if one["type"] == "Suspended" and one["status"] == "False")
    condition: JsonMapping = next(resumed, {})
    return parse_time(condition.get("lastTransitionTime") or job["metadata"].get("creationTimestamp"))


def _read_report(status: JsonMapping | None) -> ReportedProgress | None:
    """Return the progress that the program has posted (KEP 2779); None without one."""
    if not status:
        return None
    metrics = (status.get("metrics") or ())[:MAX_METRICS]
    return ReportedProgress(
        percent=status.get("progressPercentage"),
        remaining_seconds=status.get("estimatedRemainingSeconds"),
        metrics={str(metric["name"]): str(metric["value"]) for metric in metrics},
        time=parse_time(status.get("lastUpdatedTime")),
    )


def _read_variables(job: JsonMapping) -> dict[str, str]:
    """Return the variables that the TrainJob itself sets, without those of a Secret or a field."""
    env = ((job.get("spec") or {}).get("trainer") or {}).get("env") or ()
    return {one.get("name") or "": one.get("value") or "" for one in env}


def _count_nodes(job: JsonMapping) -> int:
    """Return the number of nodes; without one the runtime decides, so it is taken for one."""
    return ((job.get("spec") or {}).get("trainer") or {}).get("numNodes") or 1


def _find_template(runtime: JsonMapping) -> tuple[JsonMapping, tuple[str | int, ...]]:
    """Return the pod template of a TrainingRuntime that trains, and the path of its `spec`; nothing if there is no runtime."""
    jobs = ((runtime.get("spec") or {}).get("template") or {}).get("spec") or {}
    for index, job in enumerate(jobs.get("replicatedJobs") or ()):
        if job.get("name") == trainer_api.NODE:
            return job["template"]["spec"]["template"], ("spec", *trainer_api.pod_template_path(index), "spec")
    return {}, ()


def _find_patch(job: JsonMapping) -> tuple[JsonMapping, tuple[str | int, ...]]:
    """Return kfjob's patch of the pod template in a shared runtime, and the path of its `spec`; nothing without it."""
    for index, patch in enumerate((job.get("spec") or {}).get("runtimePatches") or ()):
        if patch.get("manager") == trainer_api.PATCH_MANAGER:
            template, path = _find_template({"spec": patch.get("trainingRuntimeSpec") or {}})
            return template, ("spec", "runtimePatches", index, "trainingRuntimeSpec", *path[1:])
    return {}, ()
