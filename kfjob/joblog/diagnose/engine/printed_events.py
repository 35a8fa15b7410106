"""Kubernetes events and reasons that a saved log contains: the output of `kubectl describe pod` and `kubectl get events`."""

from __future__ import annotations

from kfjob.base.patterns import Match, Pattern
from kfjob.joblog.events import KubernetesEvent

_WARNING, _NORMAL = "Warning", "Normal"
_TYPE = rf"(?P<type>{_WARNING}|{_NORMAL})"
_REASON = r"(?P<reason>[A-Z][A-Za-z]{2,40})"
_AGE = r"(?:(?:\d{1,6}[dhms]){1,4}|<(?:unknown|invalid)>)(?: \(x\d{1,9} over (?:\d{1,6}[dhms]){1,4}\))?"
# kubectl v1.34: pkg/describe/describe.go DescribeEvents, pkg/cmd/events/event_printer.go
_DESCRIBED = Pattern(rf"^\s*{_TYPE}\s+{_REASON}\s+{_AGE}\s+(?P<source>[\w.-]+(?:, [\w.-]+)?)\s+(?P<message>\S.*)")
_LISTED = Pattern(rf"^\s*{_AGE}\s+{_TYPE}\s+{_REASON}\s+(?P<kind>[a-z]+)/(?P<name>[\w.-]+)\s+(?P<message>\S.*)")
_STATE = Pattern(r"^ +Reason:  +(?P<reason>[A-Z][A-Za-z]{2,40})\s*$")  # of a container, or of its last state
_KINDS = {"pod": "Pod", "persistentvolumeclaim": "PersistentVolumeClaim", "node": "Node", "job": "Job"}
"""Kinds whose events rules know, as the list spells them."""


def read_printed_event(text: str, *, pod: str) -> KubernetesEvent | None:
    """Return the event, or the reason of a container's state, that kubectl printed in the line; None for another line.

    `pod` is the pod of the log: `kubectl describe` names it far above its events. An age is no time, so the event has none, and
    the order of the lines counts.
    """
    if _WARNING not in text and _NORMAL not in text:
        match = _STATE.search(text) if "Reason:" in text else None
        return KubernetesEvent(kind="Pod", name=pod, reason=match["reason"], warning=True) if match else None
    if match := _DESCRIBED.search(text):
        return _to_event(match, kind="Pod", name=pod)
    if match := _LISTED.search(text):
        kind = _KINDS.get(match["kind"], match["kind"])
        return _to_event(match, kind=kind, name=pod if kind == "Pod" else match["name"])
    return None


def _to_event(match: Match, *, kind: str, name: str) -> KubernetesEvent:
    return KubernetesEvent(
        kind=kind, name=name, reason=match["reason"], message=match["message"].strip(), warning=match["type"] == _WARNING
    )
