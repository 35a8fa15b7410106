"""What the API server requires of the values in objects, beside their types (Kubernetes v1.34, pkg/apis/*/validation). Pure.

A rule refuses only what every served version refuses, and claims whose names no object can have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from kfjob.base.common_types import JsonMapping
from kfjob.base.text import join_names
from kfjob.base.units import parse_quantity
from kfjob.objects import names
from kfjob.validation.field_paths import Path

_NO_LIMIT = float("inf")
_MAX_MODE = 0o777
"""The highest mode of a file in a volume."""
_ROUNDING = 1 + 1e-9
"""For quantities of different units: `700m` is 0.7000000000000001."""


class Fault(NamedTuple):
    """A reason why the API server refuses a value; the path begins at the part that the rule checks."""

    path: Path
    title: str
    hint: str | None = None


def check_part(kind: str, part: JsonMapping, claims: Collection[str] = ()) -> Iterator[Fault]:
    """Yield what is wrong in a part whose type is `kind`; `claims` are volumes that every pod has."""
    for field, value in part.items():
        for item_path, item in [((field,), value)] if not isinstance(value, list) else _number(field, value):
            yield from _check_value(kind, field, item, item_path)
    for fields, least in _ONE_OF.get(kind, ()):
        yield from _check_alternatives(part, fields or tuple(part.keys() - {"name"}), least)
    for rule in _RULES.get(kind, ()):
        yield from rule(part)
    if kind == "PodSpec":
        yield from _check_pod(part, claims)


def check_name(kind: str, name: str) -> str | None:
    """Return why an object of a kind cannot have a name; None if it can."""
    if kind in _PATH_SEGMENTS:
        return "it may not contain `/` or `%`" if re.search(r"[/%]", name) or name in (".", "..") else None
    is_label = kind in ("Service", "Namespace")
    pattern, limit = (names.DNS_1123, names.MAX_LABEL) if is_label else (names.DNS_1123_SUBDOMAIN, names.MAX_NAME)
    if pattern.fullmatch(name) and len(name) <= limit:
        return None
    return f"it may have at most {limit} lower-case letters, digits{' and `-`' if is_label else ', `-` and `.`'}"


def find_choice_fault(field: str, value: object, choices: Sequence[str]) -> tuple[str, str] | None:
    """Return the title and the hint about a value that is not one of the choices; None if it is."""
    if value in choices or value == "":
        return None
    similar = [choice for choice in choices if choice.lower() == str(value).lower()]
    hint = f"write `{similar[0]}`" if similar else f"write one of: {', '.join(choices)}"
    return f"`{value}` is not a value of `{field}`", hint


def _number(field: str, items: Sequence[Any]) -> list[tuple[Path, Any]]:
    return [((field, index), item) for index, item in enumerate(items)]


_PATH_SEGMENTS = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_CHOICES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "PodSpec.dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
        "PodSpec.restartPolicy": ("Always", "OnFailure", "Never"),
        "PodSpec.preemptionPolicy": ("PreemptLowerPriority", "Never"),
        "Container.imagePullPolicy": ("Always", "IfNotPresent", "Never"),
        "Container.terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
        "Container.restartPolicy": ("Always", "OnFailure", "Never"),
        "ContainerPort.protocol": _PROTOCOLS,
        "ServicePort.protocol": _PROTOCOLS,
        "HTTPGetAction.scheme": ("HTTP", "HTTPS"),
        "HostPathVolumeSource.type": (
            *("DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"),
        ),
        "VolumeMount.mountPropagation": ("None", "HostToContainer", "Bidirectional"),
        "VolumeMount.recursiveReadOnly": ("Disabled", "IfPossible", "Enabled"),
        "SeccompProfile.type": ("RuntimeDefault", "Unconfined", "Localhost"),
        "SecurityContext.procMount": ("Default", "Unmasked"),
        "Toleration.operator": ("Exists", "Equal", "Lt", "Gt"),
        "Toleration.effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
        "NodeSelectorRequirement.operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
        "LabelSelectorRequirement.operator": ("In", "NotIn", "Exists", "DoesNotExist"),
        "TopologySpreadConstraint.whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
        "TopologySpreadConstraint.nodeAffinityPolicy": ("Honor", "Ignore"),
        "TopologySpreadConstraint.nodeTaintsPolicy": ("Honor", "Ignore"),
        "ServiceSpec.type": ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
        "ServiceSpec.sessionAffinity": ("None", "ClientIP"),
        "PersistentVolumeClaimSpec.accessModes": ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
        "PersistentVolumeClaimSpec.volumeMode": ("Filesystem", "Block"),
        "PersistentVolumeSpec.accessModes": ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"),
        "PersistentVolumeSpec.persistentVolumeReclaimPolicy": ("Retain", "Delete", "Recycle"),
        "PersistentVolumeSpec.volumeMode": ("Filesystem", "Block"),
        "DeploymentStrategy.type": ("RollingUpdate", "Recreate"),
    }
)
"""The values of fields; an empty text is the default."""

_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "ContainerPort.containerPort": (1, 65535),
        "ContainerPort.hostPort": (0, 65535),
        "ServicePort.port": (1, 65535),
        "ServicePort.nodePort": (0, 65535),
        "ConfigMapVolumeSource.defaultMode": (0, _MAX_MODE),
        "SecretVolumeSource.defaultMode": (0, _MAX_MODE),
        "DownwardAPIVolumeSource.defaultMode": (0, _MAX_MODE),
        "ProjectedVolumeSource.defaultMode": (0, _MAX_MODE),
        "KeyToPath.mode": (0, _MAX_MODE),
        "PreferredSchedulingTerm.weight": (1, 100),
        "WeightedPodAffinityTerm.weight": (1, 100),
        "TopologySpreadConstraint.maxSkew": (1, _NO_LIMIT),
        "PodSpec.activeDeadlineSeconds": (1, _NO_LIMIT),
        "DeploymentSpec.replicas": (0, _NO_LIMIT),
        "StatefulSetSpec.replicas": (0, _NO_LIMIT),
        "JobSpec.parallelism": (0, _NO_LIMIT),
        "JobSpec.completions": (0, _NO_LIMIT),
        "JobSpec.backoffLimit": (0, _NO_LIMIT),
        **{f"Probe.{field}": (0, _NO_LIMIT) for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds")},
        **{f"Probe.{field}": (0, _NO_LIMIT) for field in ("successThreshold", "failureThreshold")},
    }
)


class _Form(NamedTuple):
    noun: str
    pattern: re.Pattern[str]
    limit: float


_LABEL = _Form("a DNS-1123 label (lower-case letters, digits and `-`)", names.DNS_1123, names.MAX_LABEL)
_SUBDOMAIN = _Form("the name of an object (lower-case letters, digits, `-` and `.`)", names.DNS_1123_SUBDOMAIN, names.MAX_NAME)
_PORT = _Form(
    "a port name (lower-case letters, digits and `-`)", re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?"), 15
)
_INNER_PATH = _Form(
    "a path below the volume (relative and without `..`)", re.compile(r"(?!/)(?!(.*/)?\.\.(/|$)).*", re.DOTALL), _NO_LIMIT
)
_FORMS: Mapping[str, _Form] = MappingProxyType(
    {
        "Container.name": _LABEL,
        "Volume.name": _LABEL,
        "ServicePort.name": _LABEL,
        "ContainerPort.name": _PORT,
        "EnvVar.name": _Form("a name of a variable (printable characters but `=`)", re.compile(r"[ -<>-~]+"), _NO_LIMIT),
        "VolumeMount.mountPath": _Form("a path", re.compile(r".+", re.DOTALL), _NO_LIMIT),
        "VolumeMount.subPath": _INNER_PATH,
        "VolumeMount.subPathExpr": _INNER_PATH,
        "KeyToPath.path": _INNER_PATH,
        "PersistentVolumeClaimVolumeSource.claimName": _SUBDOMAIN,
        "EmptyDirVolumeSource.medium": _Form(
            "a medium (`Memory`, `HugePages` or `HugePages-SIZE`)", re.compile(r"Memory|HugePages(-.+)?"), _NO_LIMIT
        ),
    }
)
_REQUIRED_TEXTS = ("Container.name", "Volume.name", "EnvVar.name", "VolumeMount.mountPath", "VolumeMount.name")
_KEYS = ("PodSpec.nodeSelector", "ObjectMeta.labels", "ObjectMeta.annotations", "LabelSelector.matchLabels")
_NO_LABEL_VALUE = "`{}` is not a valid label value (at most 63 letters, digits, `-`, `_` and `.`)"
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def _check_value(kind: str, field: str, value: Any, path: Path) -> Iterator[Fault]:
    name = f"{kind}.{field}"
    if name in _CHOICES and (fault := find_choice_fault(field, value, _CHOICES[name])):
        yield Fault(path, *fault)
    if name in _RANGES and (title := _check_range(field, value, *_RANGES[name])):
        yield Fault(path, title)
    if name in _FORMS and (title := _check_form(value, _FORMS[name], is_required=name in _REQUIRED_TEXTS)):
        yield Fault(path, title)
    if name in _KEYS:
        yield from _check_keys(name, value, path)
    if kind in ("ConfigMap", "Secret") and field in ("data", "stringData", "binaryData"):
        for key in value:
            if not _DATA_KEY.fullmatch(key) or len(key) > names.MAX_NAME:
                yield Fault((*path, key), f"`{key}` is not a valid key of a {kind} (letters, digits, `-`, `_` and `.`)")


def _check_range(field: str, value: float, least: float, most: float) -> str | None:
    if least <= value <= most:
        return None
    if most == _MAX_MODE:
        return f"`{field}` must be 0 to {_MAX_MODE} (octal 0777), not {value}"
    return f"`{field}` must be {least:.0f}{f' to {most:.0f}' if most != _NO_LIMIT else ' or more'}, not {value}"


def _check_form(value: str, form: _Form, *, is_required: bool) -> str | None:
    if (not value and not is_required) or (len(value) <= form.limit and form.pattern.fullmatch(value)):
        return None
    return f"`{value}` is not {form.noun}{f' of at most {form.limit} characters' if form.limit < _NO_LIMIT else ''}"


def _check_keys(name: str, texts: JsonMapping, path: Path) -> Iterator[Fault]:
    for key, text in texts.items():
        if not names.is_qualified(key.lower() if name == "ObjectMeta.annotations" else key):
            yield Fault((*path, key), f"`{key}` is not a valid key of a label or an annotation")
        elif name != "ObjectMeta.annotations" and not _is_label_value(text):
            yield Fault((*path, key), _NO_LABEL_VALUE.format(text))


def _is_label_value(text: str) -> bool:
    return not text or (len(text) <= names.MAX_LABEL and names.LABEL_VALUE.fullmatch(text) is not None)


_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_ONE_OF: Mapping[str, Sequence[tuple[tuple[str, ...], int]]] = MappingProxyType(
    {
        "Volume": [((), 0)],  # without a source it is an emptyDir
        "EnvVarSource": [(("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"), 1)],
        "Probe": [(_HANDLERS, 1)],
        "LifecycleHandler": [(("exec", "httpGet", "tcpSocket", "sleep"), 1)],
        "VolumeMount": [(("subPath", "subPathExpr"), 0)],
    }
)
"""Fields of which a part has at most one, and at least the number; no fields are all but the name."""


def _check_alternatives(part: JsonMapping, fields: Sequence[str], least: int) -> Iterator[Fault]:
    given = [field for field in part if field in fields and part[field] != ""]
    if len(given) > 1:
        yield Fault((given[1],), f"only one of {join_names(f'`{field}`' for field in given)} can be set")
    elif len(given) < least and not part.keys() - set(fields) - _BESIDE_HANDLERS:
        yield Fault((), f"one of {join_names(f'`{field}`' for field in fields)} is needed")


_BESIDE_HANDLERS = frozenset(
    (
        *("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
        "terminationGracePeriodSeconds",
    )
)
"""Fields beside the alternatives. A newer API server may have another alternative, so an unknown field is one."""


def _check_variable(part: JsonMapping) -> Iterator[Fault]:
    if part.get("value") and "valueFrom" in part:
        yield Fault(("valueFrom",), f"the variable `{part.get('name')}` has a `value` and a `valueFrom`", "remove one of them")


def _check_toleration(part: JsonMapping) -> Iterator[Fault]:
    operator = part.get("operator") or "Equal"
    if operator == "Exists" and part.get("value"):
        yield Fault(("value",), "a toleration with `operator: Exists` has no `value`", "remove it, or write `operator: Equal`")
    if not part.get("key") and operator == "Equal":
        yield Fault((), "a toleration without a `key` needs `operator: Exists`")
    if "tolerationSeconds" in part and part.get("effect") != "NoExecute":
        yield Fault(("tolerationSeconds",), "`tolerationSeconds` needs `effect: NoExecute`")
    if part.get("key") and not names.is_qualified(part["key"]):
        yield Fault(("key",), f"`{part['key']}` is not a valid key of a label or an annotation")
    value = part.get("value") or ""
    if operator == "Equal" and not _is_label_value(value):
        yield Fault(("value",), _NO_LABEL_VALUE.format(value))


def _check_requirement(part: JsonMapping) -> Iterator[Fault]:
    operator, values = part.get("operator"), part.get("values")
    if operator in ("In", "NotIn") and not values:
        yield Fault((), f"`operator: {operator}` needs `values`")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield Fault(("values",), f"`operator: {operator}` has no `values`")
    elif operator in ("Gt", "Lt") and len(values or ()) != 1:
        yield Fault((), f"`operator: {operator}` needs one value")


def _check_pod(part: JsonMapping, claims: Collection[str]) -> Iterator[Fault]:
    """Yield names in a pod that refer to nothing, or to two things."""
    own = [volume.get("name") for volume in part.get("volumes") or ()]
    yield from _find_duplicates(("volumes",), "volume", own)
    volumes = [*own, *claims]
    containers = [
        ((field, index), container)
        for field in ("initContainers", "containers")
        for index, container in enumerate(part.get(field) or ())
    ]
    yield from _find_duplicates((), "container", [c.get("name") for _, c in containers], [path for path, _ in containers])
    for path, container in containers:
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            if mount.get("name") not in volumes:
                hint = f"the volumes are {join_names(f'`{name}`' for name in volumes)}" if volumes else "add it to `volumes`"
                yield Fault((*path, "volumeMounts", index, "name"), f"the pod has no volume `{mount.get('name')}`", hint)
        for index, device in enumerate(container.get("volumeDevices") or ()):
            if device.get("name") not in volumes:
                yield Fault((*path, "volumeDevices", index, "name"), f"the pod has no volume `{device.get('name')}`")


def _find_duplicates(parent: Path, noun: str, found: Sequence[Any], paths: Sequence[Path] = ()) -> Iterator[Fault]:
    for index, name in enumerate(found):
        if name and name in found[:index]:
            yield Fault((*(paths[index] if paths else (*parent, index)), "name"), f"two {noun}s have the name `{name}`")


def _check_container(part: JsonMapping) -> Iterator[Fault]:
    ports = [port.get("name") for port in part.get("ports") or ()]
    yield from _find_duplicates(("ports",), "port", ports)
    mounts = [mount.get("mountPath") for mount in part.get("volumeMounts") or ()]
    for index, path in enumerate(mounts):
        if path in mounts[:index]:
            yield Fault(("volumeMounts", index, "mountPath"), f"two volumes are mounted at `{path}`")
    resources = part.get("resources") or {}
    for path, title, hint in _check_resources(resources.get("requests") or {}, resources.get("limits") or {}):
        yield Fault(("resources", *path), f"the container `{part.get('name')}` {title}", hint)


def _check_resources(requests: JsonMapping, limits: JsonMapping) -> Iterator[Fault]:
    for field, quantities in (("requests", requests), ("limits", limits)):
        for name, quantity in quantities.items():
            with suppress(ValueError):  # the types report what is no quantity
                number = parse_quantity(quantity)
                if number < 0:
                    yield Fault((field, name), f"has a negative {name}: {quantity}")
                elif not _is_divisible(name) and abs(number - round(number)) > number * (_ROUNDING - 1):
                    yield Fault((field, name), f"has a part of a device: {quantity} {name}", "write a whole number")
    for name, request in requests.items():
        limit = limits.get(name)
        with suppress(ValueError):
            if limit is None:
                if not _is_divisible(name):
                    title, hint = (
                        f"requests {name} without a limit",
                        f"write `limits: {{{name}: {request}}}`; a request is not needed",
                    )
                    yield Fault(("requests", name), title, hint)
            elif parse_quantity(request) > parse_quantity(limit) * _ROUNDING:
                hint = f"raise the limit of {limit}, or lower the request of {request}"
                yield Fault(("requests", name), f"requests more {name} than its limit", hint)
            elif not _is_divisible(name) and parse_quantity(request) * _ROUNDING < parse_quantity(limit):
                yield Fault(("requests", name), f"requests less {name} than its limit of {limit}", "write the same number")


def _is_divisible(resource: str) -> bool:
    """Return whether a container can request less than its limit: not of devices (`nvidia.com/gpu`) and huge pages."""
    return not resource.startswith("hugepages-") and ("/" not in resource or "kubernetes.io/" in resource)


def _check_service(part: JsonMapping) -> Iterator[Fault]:
    ports = part.get("ports") or []
    if not ports and part.get("clusterIP") != "None" and part.get("type") != "ExternalName":
        yield Fault((), "a Service needs `ports`, or `clusterIP: None`")
    if len(ports) > 1:
        for index, port in enumerate(ports):
            if not port.get("name"):
                yield Fault(("ports", index), "of several ports, each needs a `name`")
        yield from _find_duplicates(("ports",), "port", [port.get("name") for port in ports])


def _check_claim(part: JsonMapping) -> Iterator[Fault]:
    if not part.get("accessModes"):
        yield Fault((), "a volume claim needs `accessModes`", "for example `accessModes: [ReadWriteMany]`")
    storage = ((part.get("resources") or {}).get("requests") or {}).get("storage")
    with suppress(ValueError):
        if storage is None or parse_quantity(storage) <= 0:
            yield Fault(("resources",), "a volume claim needs `resources.requests.storage` above 0")


def _check_selector(part: JsonMapping) -> Iterator[Fault]:
    wanted = (part.get("selector") or {}).get("matchLabels") or {}
    labels = ((part.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not part.get("selector"):
        yield Fault((), "`selector` is needed", "repeat the labels of the pod template as `matchLabels`")
    elif different := [key for key in wanted if labels.get(key) != wanted[key]]:
        title = f"`selector` has the label `{different[0]}: {wanted[different[0]]}`, which the pod template does not have"
        yield Fault(("selector", "matchLabels", different[0]), title)


def _check_job(part: JsonMapping) -> Iterator[Fault]:
    pod = (part.get("template") or {}).get("spec") or {}
    if pod.get("restartPolicy") not in ("OnFailure", "Never"):
        yield Fault(("template", "spec"), "the pods of a Job need `restartPolicy: OnFailure` or `Never`")


_RULES: Mapping[str, Sequence[Callable[[JsonMapping], Iterator[Fault]]]] = MappingProxyType(
    {
        "EnvVar": [_check_variable],
        "Toleration": [_check_toleration],
        "NodeSelectorRequirement": [_check_requirement],
        "LabelSelectorRequirement": [_check_requirement],
        "Container": [_check_container],
        "ServiceSpec": [_check_service],
        "PersistentVolumeClaimSpec": [_check_claim],
        "DeploymentSpec": [_check_selector],
        "StatefulSetSpec": [_check_selector],
        "DaemonSetSpec": [_check_selector],
        "JobSpec": [_check_job],
    }
)
