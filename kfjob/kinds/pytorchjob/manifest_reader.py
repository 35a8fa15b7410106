"""Reads the PyTorchJobs that users write: checks them, locates their fields and converts them to specs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.convert.conversion import Conversion
from kfjob.kinds.manifests import ANY_JOB, OWN_OBJECT, JobChoice, LintInput, ManifestChange, ManifestProblem, ManifestReader
from kfjob.kinds.pytorchjob import operator_api
from kfjob.kinds.pytorchjob.admission import find_job_problems, remove_empty_worker
from kfjob.kinds.pytorchjob.importer.import_job import import_objects
from kfjob.kinds.pytorchjob.importer.job_search import find_jobs
from kfjob.kinds.pytorchjob.importer.unsupported_parts import fit_to_spec
from kfjob.kinds.pytorchjob.manifest_fields import find_manifest_path, use_manifest_names
from kfjob.objects.workload import find_workload
from kfjob.plan import JobPlan
from kfjob.plan.agent import operator_environment
from kfjob.source.manifest import ManifestObject
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import Path

_DEFAULTS: tuple[tuple[Path, str], ...] = (
    (("nprocPerNode",), operator_api.DEFAULT_PROCESSES),
    (("runPolicy", "cleanPodPolicy"), operator_api.DEFAULT_CLEAN_PODS),
)
_REPLICA_DEFAULTS = (("replicas", str(operator_api.DEFAULT_REPLICAS)), ("restartPolicy", operator_api.DEFAULT_RESTART_POLICY))


class PyTorchJobReader(ManifestReader):
    """Implements `ManifestReader`."""

    import_format = "pytorchjob"

    def holds_job(self, item: JsonObject) -> bool:
        """Return whether an object is a PyTorchJob of any version, or holds one."""
        return bool(find_jobs([item]))

    def import_objects(
        self, objects: Sequence[ManifestObject], *, file: str | None = None, choice: JobChoice = ANY_JOB
    ) -> Conversion:
        """Return the spec of the PyTorchJob among the objects, or inside one of them."""
        return import_objects(objects, file=file, choice=choice)

    def complete(self, job: JsonObject) -> tuple[JsonObject, ManifestChange | None]:
        """Return the job without an empty Worker, which operator 1.9 refuses."""
        return remove_empty_worker(job)

    def find_problems(self, job: JsonObject) -> list[ManifestProblem]:
        """Return what the API server and the operator's webhook refuse."""
        return find_job_problems(job)

    def read_for_lint(self, objects: Sequence[ManifestObject], item: ManifestObject, launch: str) -> LintInput:
        """Return the spec of a PyTorchJob, in which its own etcd is an endpoint like any other."""
        fitted, changes = fit_to_spec(item.value)
        importable = [replace(item, value=fitted) if member is item else member for member in objects]
        conversion = import_objects(importable, file=item.positions.file, choice=OWN_OBJECT, makes_etcd=False)
        values = [member.value for member in objects]
        store = find_workload(values, _read_policy(item.value).get("rdzvHost") or "")
        spec = _keep_rendezvous_id(JobSpec.model_validate(conversion.spec), item.value, values, launch)
        return LintInput(spec, changes, store.image if store else "")

    def find_path(self, path: str, job: JsonMapping) -> Path:
        """Return the path in a PyTorchJob that has the meaning of the path of a spec."""
        return find_manifest_path(path, job)

    def use_manifest_names(self, problem: Problem) -> Problem:
        """Return a problem of a spec whose texts name the fields of a PyTorchJob."""
        return use_manifest_names(problem)

    def list_defaults(self, job: JsonMapping) -> Iterator[tuple[Path, str]]:
        """Yield the fields that the job lacks, with the operator's defaults."""
        for path, value in _DEFAULTS:
            parent = job["spec"]
            for step in path[:-1]:
                parent = parent.get(step) or {}
            if parent.get(path[-1]) is None:
                yield ("spec", *path), value
        for role, replica in (job["spec"].get("pytorchReplicaSpecs") or {}).items():
            for field, value in _REPLICA_DEFAULTS:
                if (replica or {}).get(field) is None:
                    yield ("spec", "pytorchReplicaSpecs", role, field), value

    def list_variables(self, job: JsonMapping, plan: JobPlan, node_rank: int) -> dict[str, str]:
        """Return the variables that the operator adds to a pod, without those of fields that the job lacks."""
        policy, is_elastic = _read_policy(job), job["spec"].get("elasticPolicy") is not None
        given = {
            "PET_RDZV_ID": policy.get("rdzvId"),
            "PET_MAX_RESTARTS": policy.get("maxRestarts") is not None,
            "PET_RDZV_CONF": policy.get("rdzvConf"),
            "PET_RDZV_BACKEND": is_elastic,
            "PET_RDZV_ENDPOINT": is_elastic,
        }
        env = {name: value for name, value in operator_environment(plan, node_rank).items() if given.get(name, True)}
        return env if is_elastic else env | {"PET_NNODES": str(len(plan.pods))}


def _read_policy(job: JsonMapping) -> JsonMapping:
    policy: JsonMapping = job["spec"].get("elasticPolicy") or {}
    return policy


def _keep_rendezvous_id(spec: JobSpec, job: JsonMapping, objects: Sequence[JsonMapping], launch: str) -> JobSpec:
    """Return the spec with the job's own rendezvous id (torch's default is `none`), if launches share the id and its store."""
    policy = _read_policy(job)
    rendezvous_id = policy.get("rdzvId") or "none"
    brings_store = any(item["kind"] == "Service" and item["metadata"].get("name") == policy.get("rdzvHost") for item in objects)
    if launch in rendezvous_id or brings_store:
        return spec
    return spec.model_copy(update={"rendezvous": spec.rendezvous.model_copy(update={"id": rendezvous_id})})
