"""The etcd beside an imported job: kfjob can make it for the job, if nothing else in the file uses it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.shells import find_own_script, is_shell
from kfjob.convert.conversion import Note
from kfjob.objects import api_objects, names
from kfjob.objects.containers import find_containers
from kfjob.objects.workload import find_workload
from kfjob.plan.values import DEFAULT_ETCD_IMAGE
from kfjob.source.manifest import ManifestObject

_KEYWORDS = frozenset(("!", "{", "}", "do", "done", "elif", "else", "fi", "if", "then", "until", "while"))
_PROBES = frozenset(("curl", "dig", "etcdctl", "getent", "host", "nc", "ncat", "netcat", "nslookup", "ping", "telnet", "wget"))
"""Programs that ask whether a host answers."""
_HARMLESS = frozenset(
    (":", "[", "[[", "break", "date", "echo", "exit", "false", "for", "grep", "printf", "seq", "set", "sleep", "test", "true")
)
"""Programs that a wait uses besides."""
_ADDRESS_NAME = re.compile(r"ADDR|ENDPOINT|HOST|SERVER|SERVICE|URL", re.IGNORECASE)
_SUBSTITUTION = re.compile(r"\$\(([^()]+)\)|`([^`]+)`")
_OPERATOR = re.compile(r"[();<>|&]+")


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

    If something else asks for the Service, nothing is replaceable: a container of the job that does not only wait for it,
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
        waits = [container for container in containers if _uses(container, service) and _only_waits(container)]
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
        is_wait = "initContainers" in path and _only_waits(container)
        if _uses(container, service) and (waits or not is_wait):
            return True
    return False


def _uses(container: JsonMapping, service: str) -> bool:
    """Return whether a container has a Service as a host: in a URL, before a port, or where a program takes a host."""
    host = rf"{re.escape(service)}(?:\.[a-z0-9-]+(?:\.svc(?:\.[a-z0-9.-]+)?)?)?"
    address = re.compile(rf"//{host}(?![\w.-])|(?<![\w./-]){host}:\d")
    words, variables = _list_words(container), _list_variables(container)
    if any(address.search(text) for text in (*words, *(value for _, value in variables))):
        return True
    whole = re.compile(rf"{host}\.?")
    if any(whole.fullmatch(value) for name, value in variables if _ADDRESS_NAME.search(name)):
        return True
    return any(
        command[0] in (*_PROBES, "") and any(whole.fullmatch(word) for word in command[1:])
        for command in _list_commands(container)
    )


def _only_waits(container: JsonMapping) -> bool:
    """Return whether every program that a container runs asks for a host, or does nothing."""
    commands = list(_list_commands(container))
    return bool(commands) and all(command[0] in _PROBES | _HARMLESS for command in commands)


def _list_words(container: JsonMapping) -> list[str]:
    parts = (container.get(field) for field in ("command", "args"))
    return [word for part in parts if isinstance(part, list) for word in part if isinstance(word, str)]


def _list_variables(container: JsonMapping) -> list[tuple[str, str]]:
    variables = container.get("env")
    items = [item for item in variables if isinstance(item, dict)] if isinstance(variables, list) else []
    return [(str(item.get("name")), item["value"]) for item in items if isinstance(item.get("value"), str)]


def _list_commands(container: JsonMapping) -> Iterator[list[str]]:
    """Yield the simple commands of a container as words: its program, or what is in the text of its shell."""
    words = _list_words(container)
    if not words:
        return
    program, script = words[0].rpartition("/")[2], find_own_script(words)
    if script is not None:
        yield from _split_commands(words[script])
    else:
        yield [program] if is_shell(program) else [program, *words[1:]]


def _split_commands(text: str) -> Iterator[list[str]]:
    """Yield the simple commands of a shell text; a text that cannot be split is one command without a name."""
    try:
        lines = [list(_split_line(line)) for line in re.sub(r"\\\n", " ", text).splitlines()]
    except ValueError:  # a quote that does not end in its line
        yield ["", *re.split(r"[\s;&|()]+", text)]
        return
    for line in lines:
        command: list[str] = []
        for word in (*line, ";"):
            for substitution in _SUBSTITUTION.finditer(word):
                yield from _split_commands(substitution[1] or substitution[2])
            if command and word == ";":
                yield [command[0].rpartition("/")[2], *command[1:]]
                command = []
            elif word != ";" and not (not command and (word in _KEYWORDS or re.match(r"\w+=", word))):
                command.append(word)


def _split_line(line: str) -> Iterator[str]:
    """Yield the words of one line, with `;` for every operator between commands, and without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = iter(lexer)
    for word in words:
        if not _OPERATOR.fullmatch(word):
            yield word
        elif "<" in word or ">" in word:
            next(words, None)  # the file
        else:
            yield ";"
