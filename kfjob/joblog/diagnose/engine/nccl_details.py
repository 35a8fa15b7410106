"""NCCL's warnings before an exception: its message only repeats that NCCL failed, and the warning says where and why."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.engine.history import MAX_QUOTE, NcclWarning, PodHistory
from kfjob.joblog.diagnose.engine.incidents import Incident, Kind
from kfjob.joblog.diagnose.engine.matching import Explanation
from kfjob.joblog.diagnose.rules import check_ids
from kfjob.redaction import cut_text

MAX_DISTANCE = 200
"""Lines between a warning of NCCL and the exception that it explains."""
MAX_WARNINGS = 16
"""Newest warnings of NCCL to keep of a pod."""
MAX_QUOTED = 2
"""Warnings to quote with an exception."""

_WARNING = Pattern(r"\[(?P<gpu>\d{1,3})\] (?:\S+ )?NCCL WARN (?P<what>\S.*)")
_GENERAL = frozenset(check_ids("nccl-error", "nccl-system-error"))
"""Rules that only know NCCL's class of error."""
(WARNING_RULE,) = check_ids("nccl-warning")


class Details(Struct, frozen=True):
    """The explanation of an exception with the warnings that belong to it."""

    explanation: Explanation
    warnings: Sequence[NcclWarning] = ()


def remember_warning(pod: PodHistory, incident: Incident) -> None:
    """Keep the incident if it is a warning of NCCL."""
    text = incident.lines[0]
    if incident.kind is Kind.EXCEPTION or "NCCL WARN" not in text or not (match := _WARNING.search(text)):
        return
    mark = incident.mark
    warning = NcclWarning(
        mark.order, mark.line, mark.round_start, match["gpu"], match["what"].strip(), incident.printed[0].strip()
    )
    pod.nccl_warnings = [*pod.nccl_warnings, warning][-MAX_WARNINGS:]


def add_details(pod: PodHistory, incident: Incident, explanation: Explanation, gpu: str) -> Details:
    """Add the newest warnings of NCCL before an exception of NCCL; those of the same GPU (`gpu`, "" if unknown) come first."""
    if incident.kind is not Kind.EXCEPTION or "nccl" not in incident.text.lower():
        return Details(explanation)
    mark = incident.mark
    near = [
        item
        for item in pod.nccl_warnings
        if item.round_start == mark.round_start and 0 <= mark.line - item.line <= MAX_DISTANCE
    ]
    warnings = ([item for item in near if item.gpu == gpu] or near)[-MAX_QUOTED:]
    if not warnings:
        return Details(explanation)
    values = explanation.values
    if explanation.rule.id in _GENERAL:
        values = {**values, "what": warnings[-1].what}
    quoted = tuple(cut_text(item.printed, MAX_QUOTE) for item in warnings)
    context = tuple(text for text in explanation.context if text not in quoted)
    return Details(replace(explanation, values=values, evidence=(*quoted, *explanation.evidence), context=context), warnings)
