"""The seam for kinds of jobs: everything that differs between kinds of jobs on a cluster is a member of `JobKind`.

A kind is a folder beside this module and a row in `registry`. What reads a live job must not import pydantic, because it runs
in commands that only read; methods that compile or check a spec import what they need when they are called.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.text import join_lines
from kfjob.joblog.events import TRAINING_CONTAINER, JobChanged, JobPhase
from kfjob.objects.permissions import Permission
from kfjob.objects.reading import find_owner_uid, parse_time

if TYPE_CHECKING:
    from kfjob.base.errors import Problem
    from kfjob.joblog.observe_config import ObserveConfig
    from kfjob.kinds.manifests import ManifestReader
    from kfjob.plan import JobPlan


class ReadObject(Protocol):
    """Reads one object of the cluster; None if it does not exist. Raises Forbidden if the user may not read it."""

    def __call__(self, api_version: str, resource: str, name: str, *, namespaced: bool = True) -> JsonObject | None:
        """Return the object, or None."""


class Replica(Struct, frozen=True):
    """How a pod belongs to its job."""

    role: str  # Master | Worker
    index: int  # among the pods of its role, in the order of node ranks
    host: str = ""  # the name under which other pods reach it; "": the name of the pod


class PodTemplate(Struct, frozen=True, kw_only=True):
    """A pod template in the objects of a job, with the names of the pods that are created from it."""

    names: tuple[str, ...]
    metadata: JsonMapping
    spec: JsonMapping
    role: str = ""  # Master | Worker; "": a pod beside the job
    training_container: str = ""  # the name of the container that trains; "" in a pod beside the job
    path: tuple[str | int, ...] = ()  # of `spec` in its object


class JobKind(ABC):
    """One kind of job: how a plan becomes its objects, and how its objects and pods are read."""

    name: ClassVar[str]
    """The kind in its manifests: `PyTorchJob`."""
    api_version: ClassVar[str]
    resource: ClassVar[str]
    """The resource in URLs: `pytorchjobs`."""
    controller: ClassVar[str]
    """What creates the pods, for messages: `the training operator`."""
    install_command: ClassVar[str]
    """The command with which an administrator installs the controller; "" if it is part of Kubernetes."""
    controller_labels: ClassVar[str] = ""
    """The label selector of the controller's deployments; "" if it is part of Kubernetes."""
    training_container: ClassVar[str] = TRAINING_CONTAINER
    """Name of the container that trains. Events call it `TRAINING_CONTAINER` whatever its kind."""
    prerequisites: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Kinds of this API group of which a job's objects must exist as long as the job, with their resources. The object has the
    job's name."""
    dependents: ClassVar[tuple[str, ...]] = ("pods",)
    """Core resources of which a job's name is free only when its objects are gone."""
    deletion: ClassVar[str] = "Foreground"
    """How a job is deleted: behind what it owns (`Foreground`), or before (`Background`)."""
    is_scalable: ClassVar[bool] = True
    """Whether the number of pods of a live elastic job can change."""
    runs_when_all_pods_do: ClassVar[bool] = False
    """Whether the controller calls a job running only when all of its pods are ready, although some may train alone."""
    pod_suffix: ClassVar[re.Pattern[str]]
    """What follows the job's name and a hyphen in the names of its pods."""
    named_after_job: ClassVar[frozenset[str]] = frozenset()
    """Kinds of which the controller creates one object under the job's own name."""
    permissions: ClassVar[tuple[Permission, ...]]
    """The rights without which a command of kfjob does not work."""
    useful_permissions: ClassVar[tuple[Permission, ...]] = ()
    """The rights that only some features need."""

    @property
    @abstractmethod
    def shape(self) -> Any:
        """The type of the fields that kfjob reads; every answer of the API server is checked against it."""

    @property
    def group(self) -> str:
        """The API group; "" for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def etcd_outlives_job(self) -> bool:
        """Whether a job is gone before its own etcd, which it owns."""
        return self.deletion == "Background"

    @property
    def manifests(self) -> ManifestReader | None:
        """What reads manifests of this kind that users write; None if a job of this kind always comes from a spec."""
        return None

    # from a plan to objects

    @abstractmethod
    def compile(self, plan: JobPlan) -> list[JsonObject]:
        """Return the objects of a plan: the job, behind those that must exist before it."""

    def find_override_problems(self, overrides: JsonMapping) -> Iterator[Problem]:  # noqa: ARG002 - a kind may not know its schema
        """Yield the `overrides` of a spec that this kind does not have, with paths of the spec."""
        yield from ()

    @abstractmethod
    def find_plan_problems(self, plan: JobPlan) -> Iterator[Problem]:
        """Yield what this kind cannot express of a plan, its overrides included, with paths of the spec.

        `compile` must express everything else: a field of the spec is never ignored.
        """

    def find_type_problems(self, job: JsonMapping) -> Iterator[str]:  # noqa: ARG002 - a kind may leave it to the API server
        """Yield why the controller would refuse a manifest of this kind, for manifests that somebody may have edited."""
        yield from ()

    def find_runtime_problems(self, job: JsonMapping, read: ReadObject) -> Iterator[Problem]:  # noqa: ARG002 - most need none
        """Yield what is wrong with a runtime of the cluster that a job of this kind uses."""
        yield from ()

    @abstractmethod
    def name_hosts(self, job: str, nodes: int, /, *, master: bool) -> tuple[str, ...]:
        """Return the names under which the pods of a job reach each other, by node rank."""

    @abstractmethod
    def read_pod_templates(self, job: JsonMapping, others: Iterable[JsonMapping] = ()) -> list[PodTemplate]:
        """Return the pod templates of a job, in the order of node ranks.

        `others` are the objects that are submitted with it, for a kind whose templates stand in another object. Without them
        a template has what the job itself says.
        """

    # from a live job to facts

    @abstractmethod
    def read_state(self, job: JsonMapping, *, now: int) -> JobChanged:
        """Return the job's state, as its controller reports it."""

    @abstractmethod
    def select_pods(self, job: str) -> str:
        """Return the label selector of the pods of a job, and of its other dependents."""

    @abstractmethod
    def read_replica(self, pod: JsonMapping) -> Replica:
        """Return how a pod belongs to its job."""

    @abstractmethod
    def read_observe_config(self, job: JsonMapping, *, progress: str | None = None) -> ObserveConfig:
        """Return what observation needs of a job that has no record of it, with the pattern of its progress lines."""

    def find_job_id(self, item: JsonMapping) -> str:
        """Return the id of the job that a pod or another dependent belongs to; "" for none."""
        return find_owner_uid(item, self.name)

    def identify(self, *, name: str, uid: str, launch: str) -> str:  # noqa: ARG002 - a kind may need them
        """Return the id that `find_job_id` returns for the pods of a job: its uid, unless its pods do not carry that."""
        return uid

    def adopt_live_fields(self, job: JsonObject, live: JsonMapping) -> JsonObject:  # noqa: ARG002 - a kind may have no such fields
        """Return the manifest of a job with what other controllers have written into the spec of the live job."""
        return job

    def refuses_change(self, refusal: str) -> bool:  # noqa: ARG002 - a controller may take every change
        """Return whether the API server or the controller refuses a change only because the job exists already."""
        return False

    def lacks_only_prerequisite(self, job: JsonMapping, refusal: str) -> bool:  # noqa: ARG002 - a kind may need no other object
        """Return whether the controller refuses a job only because the prerequisites that kfjob makes do not exist yet."""
        return False

    def find_store(self, job: JsonMapping) -> str:  # noqa: ARG002 - a kind may have no rendezvous in a store
        """Return the name of the pod that is the job's own store for the rendezvous; "" if it has none."""
        return ""

    def select_template_store(self, job: JsonMapping) -> str:  # noqa: ARG002 - as above
        """Return the label selector of the pods of the store that the job's template brings; "" if it brings none."""
        return ""

    def will_have_pod(self, job: JsonMapping, pod: str) -> bool:
        """Return whether the controller has created or will create a pod of this name for the job."""
        names = (name for template in self.read_pod_templates(job) for name in template.names)
        return not self.read_state(job, now=0).phase.ended and pod in names

    def is_suspended(self, job: JsonMapping) -> bool:  # noqa: ARG002 - a kind may have no such field
        """Return whether the job waits for somebody to resume it, such as a queue."""
        return False

    def changes_in_place(self, path: str) -> bool:
        """Return whether the field at a path such as `spec.runPolicy.suspend` can change while the job exists."""
        return path.startswith("metadata")

    def describe_definition(self, definition: JsonMapping) -> tuple[str, bool]:  # noqa: ARG002 - a kind may have one version
        """Return the versions of the controller that have this definition, and whether it has all that kfjob uses."""
        return "", True

    def make_invalid(self, namespace: str) -> JsonObject | None:  # noqa: ARG002 - a kind may have no webhook
        """Return a job that the controller's webhook must refuse; None if there is no webhook."""
        return None

    def make_owner_reference(self, job: str, uid: str) -> JsonObject:
        """Return the reference that makes a job the owner of another object, so that this is deleted with the job."""
        kind = {"apiVersion": self.api_version, "kind": self.name}
        return {**kind, "name": job, "uid": uid, "controller": False, "blockOwnerDeletion": True}


def read_conditions(job: JsonMapping, phases: Mapping[str, JobPhase], *, now: int) -> JobChanged:
    """Return the state of a job whose controller reports it as conditions; `phases` has the types that describe a state."""
    status = job.get("status") or {}
    condition = _find_newest(status.get("conditions") or [], phases)
    phase = phases[condition["type"]] if condition else JobPhase.PENDING
    ended = parse_time(status.get("completionTime"))
    if phase.ended and ended is None and condition:  # controllers set the completion time of successful jobs only
        ended = parse_time(condition.get("lastTransitionTime"))
    return JobChanged(
        phase=phase,
        reason=join_lines((condition.get("reason") if condition else "") or ""),
        message=join_lines((condition.get("message") if condition else "") or ""),
        created=parse_time(job["metadata"].get("creationTimestamp")),
        started=parse_time(status.get("startTime")),
        ended=ended if phase.ended else None,
        time=now,
    )


def _find_newest(conditions: Sequence[JsonObject], phases: Mapping[str, JobPhase]) -> JsonObject | None:
    """Return the condition that describes the job's state: a final one, else the newest that is true.

    The training operator appends a condition, and removes the one that contradicts it first. So the order of the list decides
    between conditions of the same second.
    """
    true = [one for one in conditions if one.get("status") == "True" and one.get("type") in phases]
    for one in reversed(true):
        if phases[one["type"]].ended:
            return one
    return max(enumerate(true), key=lambda pair: (pair[1].get("lastTransitionTime") or "", pair[0]), default=(0, None))[1]


def permit(verbs: Iterable[str], resource: str, *, group: str = "", subresource: str = "") -> tuple[Permission, ...]:
    """Return the permission for each verb on a resource."""
    return tuple(Permission(verb=verb, resource=resource, group=group, subresource=subresource) for verb in verbs)
