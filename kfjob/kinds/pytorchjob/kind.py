"""PyTorchJobs of the Kubeflow training operator (v1.9.3), as a kind of job."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.parsing import ParseError, parse_json
from kfjob.joblog.events import JobChanged, JobPhase
from kfjob.kinds.base import JobKind, PodTemplate, Replica, permit, read_conditions
from kfjob.kinds.pytorchjob import operator_api
from kfjob.objects import api_objects, names
from kfjob.objects.differences import MISSING, get_value
from kfjob.objects.reading import get_annotation
from kfjob.objects.workload import find_selector
from kfjob.validation.field_paths import join_path

if TYPE_CHECKING:
    from kfjob.base.errors import Problem
    from kfjob.joblog.observe_config import ObserveConfig
    from kfjob.kinds.manifests import ManifestReader
    from kfjob.plan import JobPlan

_PHASES = {
    "Created": JobPhase.PENDING,
    "Running": JobPhase.RUNNING,
    "Restarting": JobPhase.RESTARTING,
    "Suspended": JobPhase.SUSPENDED,
    "Succeeded": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
}
"""The operator's conditions (pkg/util/status.go)."""
_IN_PLACE = ("metadata", "spec.pytorchReplicaSpecs.Worker.replicas", "spec.runPolicy")
"""Fields that change in place. The operator gives a changed pod template, environment or restart policy to new pods only, so
one job would run two versions of itself; and running agents keep an elastic job's limits of their start (PET_NNODES)."""
_INDEX = r"[0-9]{1,6}"


class PyTorchJob(JobKind):
    """Implements `JobKind`. A PyTorchJob has Workers, and a Master if its agents need a master's address."""

    name = operator_api.KIND
    api_version = operator_api.API_VERSION
    resource = operator_api.RESOURCE
    controller = "the training operator"
    install_command = "kubectl apply --server-side -k manifests/operator"
    controller_labels = "control-plane=kubeflow-training-operator"
    dependents = ("pods", "services")
    pod_suffix = re.compile(r"(?:master|worker)-\d+")
    named_after_job = frozenset({"PodGroup", "HorizontalPodAutoscaler", "PodDisruptionBudget"})
    permissions = (
        *permit(
            ("create", "get", "list", "watch", "update", "patch", "delete"),
            operator_api.RESOURCE,
            group=operator_api.GROUP,
        ),
        *permit(("get", "list", "watch"), "pods"),
        *permit(("get",), "pods", subresource="log"),
        *permit(("list",), "services"),
    )
    useful_permissions = (
        *permit(("create",), "pods"),
        *permit(("create",), "services"),
        *permit(("list",), "events"),
    )

    @property
    def shape(self) -> Any:
        """The fields that kfjob reads."""
        from kfjob.kinds.pytorchjob.shape import PyTorchJobShape

        return PyTorchJobShape

    @property
    def manifests(self) -> ManifestReader:
        """What reads PyTorchJobs that users write."""
        from kfjob.kinds.pytorchjob.manifest_reader import PyTorchJobReader

        return PyTorchJobReader()

    def compile(self, plan: JobPlan) -> list[JsonObject]:
        """Return the PyTorchJob, and the service and the pod of its own etcd."""
        from kfjob.kinds.pytorchjob.manifest import compile_manifests

        return compile_manifests(plan)

    def find_override_problems(self, overrides: JsonMapping) -> Iterator[Problem]:
        """Yield the overrides that do not fit the operator's schema."""
        from kfjob.kinds.pytorchjob.manifest import find_override_problems

        yield from find_override_problems(overrides)

    def find_plan_problems(self, plan: JobPlan) -> Iterator[Problem]:
        """Yield that the plan names a runtime, and why its overrides do not leave a valid PyTorchJob."""
        from kfjob.base.errors import Problem
        from kfjob.kinds.pytorchjob.manifest import find_plan_problems

        if plan.spec.runtime:
            hint = "set `target: trainjob`, or remove `runtime`"
            yield Problem(title="a PyTorchJob has no runtime", path="runtime", hint=hint)
        yield from find_plan_problems(plan)

    def find_type_problems(self, job: JsonMapping) -> Iterator[str]:
        """Yield the values that do not fit the operator's schema."""
        from kfjob.kinds.pytorchjob.schema import find_problems
        from kfjob.objects.crd_schema import UNKNOWN_FIELD

        for problem in find_problems(api_objects.without_nulls(job).get("spec", {})):
            if not problem.message.startswith(UNKNOWN_FIELD):  # the API server drops unknown fields
                yield f"`{join_path(('spec', *problem.path))}` {problem.message}"

    def name_hosts(self, job: str, nodes: int, /, *, master: bool) -> tuple[str, ...]:
        """Return the names of the pods: the operator makes a service for each pod, of the same name."""
        return names.pod_names(job, nodes, master=master)

    def read_pod_templates(
        self,
        job: JsonMapping,
        others: Iterable[JsonMapping] = (),  # noqa: ARG002 - the job has its templates
    ) -> list[PodTemplate]:
        """Return the templates of the Master and the Workers."""
        templates = []
        for role, replica in ((job.get("spec") or {}).get("pytorchReplicaSpecs") or {}).items():
            count = operator_api.count_replicas(replica)
            template = (replica or {}).get("template") or {}
            templates.append(
                PodTemplate(
                    names=tuple(names.pod_name(job["metadata"]["name"], role, index) for index in range(count)),
                    metadata=template.get("metadata") or {},
                    spec=template.get("spec") or {},
                    role=role,
                    training_container=self.training_container,
                    path=("spec", "pytorchReplicaSpecs", role, "template", "spec"),
                )
            )
        return sorted(templates, key=lambda template: template.role != "Master")

    def read_state(self, job: JsonMapping, *, now: int) -> JobChanged:
        """Return the state that the operator's conditions describe."""
        return read_conditions(job, _PHASES, now=now)

    def select_pods(self, job: str) -> str:
        """Return the selector of the operator's own label."""
        return f"{operator_api.LABEL_JOB_NAME}={job}"

    def read_replica(self, pod: JsonMapping) -> Replica:
        """Return what the operator's labels say."""
        labels = pod["metadata"].get("labels") or {}
        index = labels.get(operator_api.LABEL_REPLICA_INDEX, "")
        role = labels.get(operator_api.LABEL_REPLICA_TYPE, "worker").capitalize()
        return Replica(role, int(index) if re.fullmatch(_INDEX, index) else 0)

    def find_store(self, job: JsonMapping) -> str:
        """Return the name of the job's own etcd, which its agents meet in."""
        host = _read_rendezvous_host(job)
        return host if host == names.etcd_name(job["metadata"]["name"]) else ""

    def select_template_store(self, job: JsonMapping) -> str:
        """Return the selector of the Service that the agents meet at, if the template has its pods too."""
        host, record = _read_rendezvous_host(job), get_annotation(job, api_objects.ANNOTATION_MANIFEST)
        with contextlib.suppress(ParseError):
            return find_selector(parse_json(record), host) if host and record else ""
        return ""

    def read_observe_config(self, job: JsonMapping, *, progress: str | None = None) -> ObserveConfig:
        """Return what the manifest shows: its pods, its rendezvous and the length of its run."""
        from kfjob.kinds.pytorchjob.observation import read_manifest

        return read_manifest(job, progress=progress)

    def is_suspended(self, job: JsonMapping) -> bool:
        """Return `runPolicy.suspend`."""
        return bool(((job.get("spec") or {}).get("runPolicy") or {}).get("suspend"))

    def changes_in_place(self, path: str) -> bool:
        """Return whether running pods can take the change."""
        return path.startswith(_IN_PLACE)

    def describe_definition(self, definition: JsonMapping) -> tuple[str, bool]:
        """Return the versions of the operator, judged by the fields of the definition."""
        versions = get_value(definition, ("spec", "versions"))
        versions = versions if isinstance(versions, list) else []
        served = next((version for version in versions if get_value(version, ("served",)) is True), None)
        fields = get_value(served, ("schema", "openAPIV3Schema", "properties", "spec", "properties"))
        if get_value(fields, ("elasticPolicy",)) is MISSING:
            return "from an operator without elastic jobs", False
        if get_value(fields, ("runPolicy", "properties", "managedBy")) is MISSING:
            return "from an operator before 1.9", True
        return "from operator 1.9 or newer", True

    def make_invalid(self, namespace: str) -> JsonObject:
        """Return a PyTorchJob without a training container."""
        pod = {"containers": [{"name": "not-pytorch", "image": "none"}]}
        return {
            "apiVersion": self.api_version,
            "kind": self.name,
            "metadata": {"name": "kfjob-doctor", "namespace": namespace},
            "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": pod}}}},
        }


def _read_rendezvous_host(job: JsonMapping) -> str:
    host: str = ((job.get("spec") or {}).get("elasticPolicy") or {}).get("rdzvHost") or ""
    return host
