"""The rule that explains an incident, and the lines that it quotes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from kfjob.joblog.diagnose.engine import native
from kfjob.joblog.diagnose.engine.advice import explain_class, find_advice, find_message
from kfjob.joblog.diagnose.engine.history import MAX_CONTEXT_QUOTE, MAX_QUOTE, match_rules
from kfjob.joblog.diagnose.engine.incidents import Incident, Kind
from kfjob.joblog.diagnose.engine.samples import has_label
from kfjob.joblog.diagnose.rule import Rule, RuleMatch, Severity, Subject
from kfjob.joblog.diagnose.rules import BY_ID
from kfjob.redaction import cut_text

MAX_LINES = 12
"""Lines of an incident in a quotation, without the lines before it."""

MAX_NAME = 200
"""Characters of an exception's name in a title."""

_QUIET_NAMES = ("Warning", "KeyboardInterrupt", "SystemExit")


class Explanation(Struct, frozen=True):
    """A rule with its values and the lines that show it."""

    rule: Rule
    values: Mapping[str, str]
    evidence: tuple[str, ...]
    context: tuple[str, ...]

    @property
    def is_specific(self) -> bool:
        """Whether a rule knows this failure, not only its form."""
        return self.rule.subject is Subject.LOG and not self.rule.wraps


def explain(incident: Incident, *, pod: str) -> Explanation | None:
    """Return the explanation of the best rule; None for a message that no rule knows."""
    match = None if incident.dump and incident.dump.frames else _find_best(incident)
    if match is not None:
        evidence = _quote(incident, match.first_line, match.last_line)
        return Explanation(match.rule, match.values, evidence, _quote_context(incident))
    rule = _find_general(incident)
    if rule is None:
        return None
    evidence = _quote(incident, 0, len(incident.printed))
    return Explanation(rule, _describe(incident, pod), evidence, _quote_context(incident))


def _find_best(incident: Incident) -> RuleMatch | None:
    """Return the match that explains most; of equally good ones that of the topic with the highest precedence."""
    return next(iter(find_equals(incident)), None)


def find_equals(incident: Incident) -> list[RuleMatch]:
    """Return the equally good matches that explain most, in the order in which the rules are tried."""
    matches = [match for match in _match_all(incident) if _has_form(incident, match.rule)]
    best = min((_rank(incident, match.rule) for match in matches), default=None)
    return [match for match in matches if _rank(incident, match.rule) == best]


def _rank(incident: Incident, rule: Rule) -> tuple[bool, bool, bool, int]:
    """Return a key that sorts the best rule first. Where a process ended, a harmless message explains nothing."""
    ended = incident.kind in {Kind.EXCEPTION, Kind.NATIVE}
    role = rule.role.rank if ended else 0
    return ended and rule.severity is Severity.HARMLESS, rule.wraps, not rule.stack, role


def _has_form(incident: Incident, rule: Rule) -> bool:
    """Return whether the incident has the kind and the frames that the rule needs."""
    has_kind = not rule.kinds or incident.kind in rule.kinds
    return has_kind and (not rule.stack or any(literal in line for line in incident.stack for literal in rule.stack))


def _match_all(incident: Incident) -> Iterator[RuleMatch]:
    text = incident.text
    for match in match_rules(Subject.LOG, text):
        if incident.kind in {Kind.MESSAGE, Kind.WARNING} and has_label(text[: match.start]):
            continue  # a sample of the data
        yield match


def _find_general(incident: Incident) -> Rule | None:
    """Return the rule for an exception or a crash that no rule knows."""
    if incident.kind is Kind.NATIVE:
        return BY_ID["crashed-in-call" if incident.dump and incident.dump.frames else "native-crash"]
    if incident.is_cut:
        return BY_ID["traceback-cut"]
    if incident.kind is not Kind.EXCEPTION or incident.name.endswith(_QUIET_NAMES):
        return None
    return BY_ID["thread-died" if incident.in_thread else "exception"]


def _describe(incident: Incident, pod: str) -> dict[str, str]:
    if incident.dump and incident.dump.frames:
        call, package = native.name_call(incident.dump)
        library = f"`{package}`" if package else "the program"
        what = incident.lines[0].removeprefix(native.FATAL_ERROR).strip()
        return {"what": what, "call": call, "library": library, "place": incident.location or "unknown", "pod": pod}
    if incident.kind is Kind.NATIVE:
        crash = " ".join(line.strip() for line in incident.lines[:2])
        return {"what": f"`{cut_text(crash, MAX_NAME)}`", "pod": pod}
    if incident.is_cut:
        return {"what": f"`{cut_text(incident.lines[0], MAX_NAME)}`", "place": incident.location or "unknown", "pod": pod}
    message, advice = find_message(incident), find_advice(incident)
    return {
        "what": f"`{cut_text(f'{incident.name}: {message}' if message else incident.name, MAX_NAME)}`",
        "place": incident.location or "not in the traceback",
        "meaning": explain_class(incident),
        "advice": f"the message advises: {advice}; " if advice else "",
        "pod": pod,
    }


def _quote(incident: Incident, first: int, last: int) -> tuple[str, ...]:
    """Return the frame and the first line of the message, then its other lines, or those of a crash that the rule matches."""
    if incident.wrapped or incident.kind is Kind.EXCEPTION:
        first, last = 0, len(incident.printed)
    lines = [*incident.frame, incident.printed[0].strip()]
    lines += [line.strip() for line in incident.printed[max(first, 1) : last + 1] if line.strip()]
    return tuple(cut_text(line, MAX_QUOTE) for line in lines[:MAX_LINES])


def _quote_context(incident: Incident) -> tuple[str, ...]:
    return tuple(cut_text(line, MAX_CONTEXT_QUOTE) for line in incident.context)
