"""The etcd beside an imported job: kfjob can make it for the job, if nothing else in the file uses it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.convert.conversion import Note
from kfjob.objects import api_objects, names
from kfjob.objects.containers import find_containers
from kfjob.objects.workload import find_workload
from kfjob.plan.values import DEFAULT_ETCD_IMAGE
from kfjob.source.manifest import ManifestObject

_WAIT_WORDS = frozenset((
    "bash", "bin", "break", "busybox", "curl", "date", "dev", "dig", "do", "done", "echo", "elif", "else", "endpoint",
    "etcdctl", "exit", "false", "fi", "for", "getent", "grep", "health", "host", "hosts", "if", "in", "nc", "ncat",
    "netcat", "nslookup", "null", "ping", "seq", "set", "sh", "sleep", "telnet", "test", "then", "true", "until", "usr",
    "wget", "while",
))  # fmt: skip
"""The words of a command that only asks again and again whether a host answers."""
_IGNORED = re.compile(r"\becho\b[^;&|\n$`]*|\bfor \w+|\$\{?\w+|(?<![\w/])-\w+")
"""It matches what is printed, variables and options."""
_SEPARATORS = re.compile(r"[\s;&|()]+")
_NAME = re.compile(r"[A-Za-z_]\w*")


def name_object(item: ManifestObject) -> str:
    """Return the kind and the name of an object for notes."""
    return f"{item.kind} {api_objects.describe_name(item.value)}"


def is_own_etcd(item: JsonObject, job: JsonObject) -> bool:
    """Return whether an object belongs to the etcd that kfjob made for a job."""
    labels = item["metadata"].get("labels") or {}
    is_from_kfjob = labels.get(api_objects.LABEL_MANAGED_BY) == api_objects.FIELD_MANAGER
    return is_from_kfjob and item["metadata"].get("name") == names.etcd_name(job["metadata"]["name"])


def find_replaceable_etcd(
    objects: Sequence[ManifestObject], job: JsonObject, other_jobs: Iterable[JsonObject]
) -> list[ManifestObject]:
    """Return the Service at which the job's agents meet and the etcd behind it, if both are among the objects.

    If something else names the Service, nothing is replaceable: a container of the job that does not only wait for it,
    another job, or another object.
    """
    policy = job["spec"].get("elasticPolicy") or {}
    if policy.get("rdzvBackend") not in ("etcd", "etcd-v2"):
        return []
    workload = find_workload((item.value for item in objects), str(policy.get("rdzvHost") or ""))
    if workload is None or "etcd" not in workload.image:
        return []
    service = workload.service["metadata"]["name"]
    own = [item for item in objects if item.value is workload.service or item.value is workload.pods]
    others = (*other_jobs, *(item.value for item in objects if item not in own))
    if any(_meets_at(item, service) or _has_users(item, service) for item in others) or _has_users(job, service, waits=False):
        return []
    return own


def replace_etcd(job: JsonObject, objects: Sequence[ManifestObject]) -> list[Note]:
    """Remove the endpoint of the etcd that consists of the objects from a job, and what waits for it."""
    reason = "left out: `rendezvous: etcd` makes an etcd for the job, and removes it with the job"
    policy = job["spec"]["elasticPolicy"]
    notes = [Note(item=", ".join(map(name_object, objects)), reason=reason)]
    notes += _remove_waits(job, str(policy["rdzvHost"]).partition(".")[0])
    reason = f"left out: that of the job's own etcd, which runs `{DEFAULT_ETCD_IMAGE}`"
    notes.append(Note(item=f"spec.elasticPolicy.rdzvHost: {policy.pop('rdzvHost')}", reason=reason))
    policy.pop("rdzvPort", None)
    return notes


def _remove_waits(job: JsonObject, service: str) -> list[Note]:
    """Remove the init containers that only wait for a Service, because it is left out and they would wait for ever."""
    reason = f"left out: it asks for `{service}`, which is left out too; kfjob's own init container waits for the job's etcd"
    notes: dict[str, Note] = {}
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        pod = replica.get("template", {}).get("spec", {})
        containers = pod.get("initContainers") or ()
        waits = [container for container in containers if _uses(container, service) and _only_waits(container, service)]
        notes |= {item: Note(item=item, reason=reason) for item in (f"init container {c.get('name')}" for c in waits)}
        if waits:
            pod["initContainers"] = [container for container in containers if container not in waits]
    return list(notes.values())


def _meets_at(item: JsonMapping, service: str) -> bool:
    """Return whether an object is a job whose agents meet at a Service."""
    spec = item.get("spec")
    policy = spec.get("elasticPolicy") if isinstance(spec, dict) else None
    return isinstance(policy, dict) and str(policy.get("rdzvHost")).partition(".")[0] == service


def _has_users(item: JsonMapping, service: str, *, waits: bool = True) -> bool:
    """Return whether a container of an object uses a Service; without `waits`, in another way than an init container waits."""
    for path, container in find_containers(item):
        is_wait = "initContainers" in path and _only_waits(container, service)
        if _uses(container, service) and (waits or not is_wait):
            return True
    return False


def _uses(container: JsonMapping, service: str) -> bool:
    """Return whether the command or a variable of a container names a Service."""
    variables = (item.get("value") for item in _list_items(container, "env") if isinstance(item, dict))
    return any(_match_host(service).search(str(text)) for text in (*_list_words(container), *variables))


def _only_waits(container: JsonMapping, service: str) -> bool:
    """Return whether the command of a container does nothing but ask whether a Service answers."""
    host, words = _match_host(service), _list_words(container)
    text = _IGNORED.sub(" ", " ".join(words))
    others = (part for part in _SEPARATORS.split(text) if not host.search(part))
    return bool(words) and _WAIT_WORDS.issuperset(name for part in others for name in _NAME.findall(part))


def _match_host(service: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(service)}(?![\w-])")


def _list_words(container: JsonMapping) -> list[str]:
    return [str(word) for part in ("command", "args") for word in _list_items(container, part)]


def _list_items(container: JsonMapping, field: str) -> list[object]:
    value = container.get(field)
    return value if isinstance(value, list) else []
