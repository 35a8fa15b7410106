"""Every value of a job, its origin, and the reason for it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.prepared import PreparedJob
from kfjob.api.target import Target
from kfjob.base.errors import NotFound, Problem, Refused
from kfjob.lint.fit import find_device
from kfjob.plan import JobPlan
from kfjob.plan.agent import operator_environment
from kfjob.redaction import Redactor, collect_secrets
from kfjob.spec.job import JobSpec
from kfjob.trainspec.defaults import TrainerChoice, predict_choices
from kfjob.validation.field_paths import join_path, list_leaves

_OF_PODS = (
    *("image", "image_pull_policy", "image_pull_secrets", "make_pull_secret", "network_profile", "resources", "shared_memory"),
    *("run", "recovery", "scheduling", "service_account", "pod", "annotations", "overrides"),
)
"""Fields of pods and of the cluster's objects, which a job on this machine does not have."""
_ALSO_LOCAL = ("resources.gpus", "resources.gpu_memory", "pod.working_dir", "pod.grace")


class Value(Struct, frozen=True, kw_only=True):
    """One value of the plan."""

    path: str
    value: str
    origin: str  # spec | instance | default | cluster
    reason: str = ""
    location: str = ""  # in the file; "" for a value that is not in the file


class Explanation(Struct, frozen=True, kw_only=True):
    """A plan and the origin of each of its values."""

    plan: JobPlan
    values: tuple[Value, ...]  # in the order of the spec's fields
    findings: tuple[Problem, ...] = ()  # of the lint rules, and what the pods or this machine lack

    @property
    def pods(self) -> tuple[str, ...]:
        """The names of the pods by node rank."""
        return self.plan.pods

    def operator_environment(self, node_rank: int) -> dict[str, str]:
        """Return what the operator will add to the environment of one pod.

        Raises:
            NotFound: the job has no such pod.
        """
        if not 0 <= node_rank < self.plan.spec.nodes:
            raise NotFound(f"there is no node rank {node_rank}", hint=f"the ranks are 0 to {self.plan.spec.nodes - 1}")
        return operator_environment(self.plan, node_rank)


def explain_spec(job: PreparedJob) -> Explanation:
    """Return what would be submitted, value by value."""
    spec, plan, target = job.spec, job.plan, job.target
    values = {value.path: value for value in _list_spec_values(spec, job.locate)}
    for decision in plan.decisions:
        path, from_spec = decision.path, decision.origin == "spec"
        location = values[path].location if path in values and from_spec else ""
        values[path] = Value(path=path, value=decision.value, origin=decision.origin, reason=decision.reason, location=location)
    for choice in _list_choices(spec, plan):
        path = f"train.{choice.field}"
        values[path] = Value(path=path, value=choice.value, origin="default", reason=f"because {choice.reason}")
    if plan.capabilities.runs_on_this_machine and "command" in values:
        values["command"] = replace(values["command"], reason=_explain_program(plan, target))
    if plan.capabilities.runs_on_this_machine:
        for path, reason in _explain_volumes(job):
            values[path] = replace(values[path], reason=reason)
        values = {value.path: value for value in _select_local(values.values())}
    order = {name: index for index, name in enumerate(JobSpec.model_fields)}
    ordered = sorted(values.values(), key=lambda value: order.get(value.path.partition(".")[0], len(order)))
    redactor = Redactor(collect_secrets(spec.model_dump(mode="json")))
    return Explanation(plan=plan, values=tuple(_redact(value, redactor) for value in ordered), findings=job.findings)


def _select_local(values: Iterable[Value]) -> Iterator[Value]:
    """Yield the values that a job on this machine has, and those of the spec that it ignores, with that as the reason."""
    for value in values:
        is_of_pods = value.path.partition(".")[0] in _OF_PODS and value.path not in _ALSO_LOCAL
        if not is_of_pods:
            yield value
        elif value.origin == "spec":
            yield replace(value, reason="a job on this machine ignores it")


def _list_choices(spec: JobSpec, plan: JobPlan) -> tuple[TrainerChoice, ...]:
    """Return what the trainer will choose on the job's devices."""
    if spec.train is None:
        return ()
    processes = int(plan.processes_per_node) if plan.processes_per_node.isdecimal() else 0
    is_unknown = plan.capabilities.runs_on_this_machine and not plan.resources.gpus  # the trainer uses the GPUs that it sees
    device = None if is_unknown else find_device(plan)
    return predict_choices(spec.train, device, world_size=plan.spec.nodes * processes, local_world_size=processes)


def _explain_program(plan: JobPlan, target: Target) -> str:
    """Return the program that runs the job on this machine, or why there is none."""
    try:
        return f"runs with `{target.machine.find_first_pod(plan).find_program()}`"
    except Refused as err:
        return err.title


def _explain_volumes(job: PreparedJob) -> Iterator[tuple[str, str]]:
    """Yield the mount path of each volume, and which folder of this machine it is for which paths of the job."""
    pod = job.target.machine.find_first_pod(job.plan)
    for index, volume in enumerate(job.spec.volumes):
        if volume.mount_path != (folder := pod.folders[volume.mount_path]):
            scope = "" if volume.mount_path in pod.mounts else " in arguments and `env`, but not in the code"
            yield f"volumes.{index}.mount_path", f"is `{folder}` on this machine{scope}"


def _redact(value: Value, redactor: Redactor) -> Value:
    """Return the value without secrets, because terminals are shared and their output is kept."""
    before, dot, variable = f".{value.path}".rpartition(".env.")
    name = variable if dot else before.rpartition(".")[2]
    return replace(value, value=redactor.value(value.value, name, is_environment=bool(dot)))


def _list_spec_values(spec: JobSpec, locate: Callable[[Iterable[Problem]], list[Problem]]) -> Iterator[Value]:
    """Yield the values that the spec sets, and the defaults of its other fields."""
    set_paths = dict(_list_values(spec.model_dump(mode="json", exclude_unset=True)))
    for path, value in _list_values(spec.model_dump(mode="json")):
        location = ""
        if path in set_paths:
            (problem,) = locate([Problem(title="", path=path)])
            location = (problem.location() or "").partition(" (")[0] if problem.file else ""
        yield Value(path=path, value=value, origin="spec" if path in set_paths else "default", location=location)


def _list_values(fields: Any) -> Iterator[tuple[str, str]]:
    """Yield every scalar as text with its path. A list of words is one value, and an empty value is left out."""
    for path, value in list_leaves(fields, _is_words):
        if value not in (None, [], {}):
            yield join_path(path), shlex.join(value) if isinstance(value, list) else format_value(value)


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def format_value(value: Any) -> str:
    """Return a scalar as YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
