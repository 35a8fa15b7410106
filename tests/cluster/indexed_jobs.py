"""A kind of job that kfjob does not ship: an Indexed Job of batch/v1, whose pods have names that nobody can predict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.joblog.events import JobChanged, JobPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.kinds.base import JobKind, PodTemplate, Replica, permit, read_conditions
from kfjob.kinds.job_metadata import compile_metadata
from kfjob.kinds.pod_template import compile_pod_template, own_labels
from kfjob.plan import JobPlan
from kfjob.plan.agent import operator_environment

JOB_NAME = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"
PHASES = {"Complete": JobPhase.SUCCEEDED, "Failed": JobPhase.FAILED, "Suspended": JobPhase.SUSPENDED}


class IndexedJob(JobKind):
    name = "Job"
    api_version = "batch/v1"
    resource = "jobs"
    shape = dict[str, Any]
    controller = "the Job controller"
    install_command = ""
    pod_suffix = re.compile(r"\d+-[a-z0-9]{5}")
    permissions = permit(("create", "get", "list", "watch", "delete"), "jobs", group="batch")

    def compile(self, plan: JobPlan) -> list[JsonObject]:
        """Return the Job, and the headless service by which its pods find each other."""
        template = compile_pod_template(plan)
        template["spec"] |= {"subdomain": plan.name, "restartPolicy": "Never"}
        (container,) = template["spec"]["containers"]
        container.setdefault("env", []).extend({"name": k, "value": v} for k, v in operator_environment(plan).items())
        nodes = plan.spec.nodes
        counts = {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes, "backoffLimit": 0}
        job = {
            "apiVersion": self.api_version,
            "kind": self.name,
            "metadata": compile_metadata(plan),
            "spec": {**counts, "template": template},
        }
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": plan.name, "namespace": plan.namespace, "labels": own_labels(plan)},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB_NAME: plan.name}},
        }
        return [job, service]

    def find_plan_problems(self, plan: JobPlan) -> Iterator[Problem]:
        spec = plan.spec
        has = {
            "overrides": bool(spec.overrides),
            "run": spec.run.model_dump() != type(spec.run)().model_dump(),
            "master": plan.spec.has_master,
            "rendezvous": bool(plan.own_etcd_image),
        }
        yield from (Problem(title=f"a Job has no `{name}`", path=name) for name, is_set in has.items() if is_set)

    def name_hosts(self, job: str, nodes: int, /, *, master: bool) -> tuple[str, ...]:  # noqa: ARG002 - it has no Master
        return tuple(f"{job}-{index}.{job}" for index in range(nodes))

    def read_pod_templates(self, job: JsonMapping, others: Iterable[JsonMapping] = ()) -> list[PodTemplate]:  # noqa: ARG002
        name, spec = job["metadata"]["name"], job["spec"]
        names = tuple(f"{name}-{index}" for index in range(spec["completions"]))
        template = spec["template"]
        return [
            PodTemplate(
                names=names,
                metadata=template["metadata"],
                spec=template["spec"],
                role="Worker",
                training_container=self.training_container,
                path=("spec", "template"),
            )
        ]

    def read_state(self, job: JsonMapping, *, now: int) -> JobChanged:
        state = read_conditions(job, PHASES, now=now)
        runs = (job.get("status") or {}).get("ready", 0) > 0
        return replace(state, phase=JobPhase.RUNNING) if state.phase is JobPhase.PENDING and runs else state

    def select_pods(self, job: str) -> str:
        return f"{JOB_NAME}={job}"

    def read_replica(self, pod: JsonMapping) -> Replica:
        labels = pod["metadata"]["labels"]
        index, job = int(labels[INDEX]), labels[JOB_NAME]
        return Replica("Worker", index, f"{job}-{index}.{job}")

    def read_observe_config(self, job: JsonMapping, *, progress: str | None = None) -> ObserveConfig:
        hosts = self.name_hosts(job["metadata"]["name"], job["spec"]["completions"], master=False)
        return ObserveConfig(workers=hosts, progress_pattern=progress)
