"""The rule that explains an incident, the lines that it quotes, and what an exception without a rule says itself.

One search for the literals of all rules finds the lines that matter, and the rules to try for an incident.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from ahocorasick_rs import AhoCorasick, Implementation
from msgspec import Struct

from kfjob.joblog.diagnose.engine.incidents import Incident, has_label
from kfjob.joblog.diagnose.engine.line_reports import SUCCESS_LITERALS
from kfjob.joblog.diagnose.engine.tracebacks import CRASH_MARKERS, HEADING, TRACEBACK_MARKERS
from kfjob.joblog.diagnose.engine.tracebacks import MAX_LINES as MAX_TRACEBACK
from kfjob.joblog.diagnose.rule import IncidentKind, Rule, RuleMatch, Severity, Subject
from kfjob.joblog.diagnose.rules import BY_ID, BY_SUBJECT
from kfjob.redaction import cut_text

MAX_QUOTE = 1000
"""Characters of a quoted line."""
MAX_CONTEXT_QUOTE = 200
"""Characters of a quoted line before an error."""
MAX_LINES = 12
"""Lines of an incident in a quotation, without the lines before it."""

MAX_NAME = 200
"""Characters of an exception's name in a title."""

_QUIET_NAMES = ("Warning", "KeyboardInterrupt", "SystemExit")

MAX_SENTENCES = 2
"""Sentences of advice to quote."""
MAX_ADVICE = 300
"""Characters of the advice."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
_ADVICE = re.compile(
    r"(?:Please|Make sure|Ensure|Consider|You (?:can|should|must|need|may|might)|Try|Either|Set|Install|Use|Run|Pass|Add|Check"
    r"|Increase|Decrease|Reduce|Upgrade|Downgrade|Did you mean|To (?:fix|resolve|use|disable|enable|avoid|load|run)|If you"
    r"|See(?: also| the|:)? |Refer to|Rerun|Specify|Provide|Re-?install)\b",
    re.IGNORECASE,
)
STEMS = (
    "rror", "xception", "raceback", "Warning", "warning", "WARN", "[W", "ailed", "annot", "c10d]", "ignal", "endezvous", "etcd",
    "illed", "enied", "No such", "ffer", "Normal  ", "Reason:  ", "py_callstack", '", line ', "╰─", "  time  ",
    "time      :", "]:W",
)  # fmt: skip
"""Literals of lines without a rule: exceptions, frames, boxes, warnings, events that kubectl prints, and times in
torchrun's summary. They also stand in most literals of the rules, and replace those."""

LINES_AFTER = {
    HEADING: MAX_TRACEBACK,
    "terminate called": 4,
    "Last error:": 2,
    "Error: ": 8,
    "╰─": 4,
}
"""Literals of a first line, and how many lines after it may belong to its incident."""

_LINE_STARTS = ("W", "[W")
"""Beginnings of other lines that the diagnosis needs."""
_NUMBER = re.compile(r"0x[0-9a-f]++|\d++")

SymptomKey = tuple[str, str]
"""Rule id, and the exception for rules that match any exception."""


def match_rules(subject: Subject, text: str) -> Iterator[RuleMatch]:
    """Return the rules that match the text, in the order in which they are tried."""
    rules = _find_candidates(text) if subject is Subject.LOG else BY_SUBJECT[subject]
    return (match for rule in rules if (match := rule.match(text)) is not None)


def _find_candidates(text: str) -> list[Rule]:
    """Return the rules about logs with a literal in the text; one search finds the literals of all rules."""
    automaton, owners = _build_index()
    numbers = {
        number for literal, _, _ in automaton.find_matches_as_indexes(text, overlapping=True) for number in owners[literal]
    }
    rules = BY_SUBJECT[Subject.LOG]
    return [rules[number] for number in sorted(numbers)]


@cache
def _build_index() -> tuple[AhoCorasick, tuple[tuple[int, ...], ...]]:
    """Return the search for all literals, and the numbers of the rules that have each."""
    owners: dict[str, list[int]] = {}
    for number, rule in enumerate(BY_SUBJECT[Subject.LOG]):
        for literal in rule.literals:
            owners.setdefault(literal, []).append(number)
    return AhoCorasick(tuple(owners), implementation=Implementation.DFA), tuple(map(tuple, owners.values()))


class Explanation(Struct, frozen=True):
    """A rule with its values and the lines that show it."""

    rule: Rule
    values: Mapping[str, str]
    evidence: tuple[str, ...]
    context: tuple[str, ...]

    @property
    def symptom(self) -> SymptomKey:
        """The id of the rule; with a rule for exceptions of any kind, also the text of the exception without its numbers."""
        is_general = self.rule.subject is Subject.EXCEPTION
        return self.rule.id, mask_numbers(self.values.get("what", "")) if is_general else ""

    @property
    def is_specific(self) -> bool:
        """Whether a rule knows this failure, not only its form."""
        return self.rule.subject is Subject.LOG and not self.rule.wraps


def explain(incident: Incident, *, pod: str) -> Explanation | None:
    """Return the explanation of the best rule; None for a message that no rule knows."""
    match = _find_best_match(incident)
    if match is not None:
        evidence = _quote(incident, match.first_line, match.last_line)
        return Explanation(match.rule, match.values, evidence, _quote_context(incident))
    rule = _find_general(incident)
    if rule is None:
        return None
    evidence = _quote(incident, 0, len(incident.printed))
    return Explanation(rule, _describe(incident, pod), evidence, _quote_context(incident))


def _find_best_match(incident: Incident) -> RuleMatch | None:
    """Return the match that explains most; of equally good ones that of the topic with the highest precedence."""
    return next(iter(find_best_matches(incident)), None)


def find_best_matches(incident: Incident) -> list[RuleMatch]:
    """Return the equally good matches that explain most, in the order in which the rules are tried."""
    matches = [match for match in _match_all(incident) if _has_frames(incident, match.rule)]
    best = min((_rank(incident, match.rule) for match in matches), default=None)
    return [match for match in matches if _rank(incident, match.rule) == best]


def _rank(incident: Incident, rule: Rule) -> tuple[bool, bool, bool, int]:
    """Return a key that sorts the best rule first. Where a process ended, a harmless message explains nothing."""
    ended = incident.kind in {IncidentKind.EXCEPTION, IncidentKind.NATIVE}
    role = rule.role.rank if ended else 0
    return ended and rule.severity is Severity.HARMLESS, rule.wraps, not rule.stack, role


def _has_frames(incident: Incident, rule: Rule) -> bool:
    """Return whether the incident has the frames that the rule needs."""
    return not rule.stack or any(literal in line for line in incident.stack for literal in rule.stack)


def _match_all(incident: Incident) -> Iterator[RuleMatch]:
    text = incident.text
    for match in match_rules(Subject.LOG, text):
        if incident.kind in {IncidentKind.MESSAGE, IncidentKind.WARNING} and has_label(text[: match.start]):
            continue  # a sample of the data
        yield match


def _find_general(incident: Incident) -> Rule | None:
    """Return the rule for an exception or a crash that no rule knows."""
    if incident.kind is IncidentKind.NATIVE:
        return BY_ID["native-crash"]
    if incident.is_cut:
        return BY_ID["traceback-cut"]
    if incident.kind is not IncidentKind.EXCEPTION or incident.name.endswith(_QUIET_NAMES):
        return None
    return BY_ID["thread-died" if incident.in_thread else "exception"]


def _describe(incident: Incident, pod: str) -> dict[str, str]:
    if incident.kind is IncidentKind.NATIVE:
        crash = " ".join(line.strip() for line in incident.lines[:2])
        return {"what": f"`{cut_text(crash, MAX_NAME)}`", "pod": pod}
    if incident.is_cut:
        return {"what": f"`{cut_text(incident.lines[0], MAX_NAME)}`", "place": incident.location or "unknown", "pod": pod}
    message, advice = find_message(incident), find_advice(incident)
    names_place = bool(incident.location) and not incident.frame  # the quoted lines do not show it
    return {
        "what": f"`{cut_text(f'{incident.name}: {message}' if message else incident.name, MAX_NAME)}`",
        "place": incident.location or "not in the traceback",
        "origin": f"the innermost frame of the program is {incident.location}" if names_place else "",
        "advice": f"the message advises: {advice}; " if advice else "",
        "pod": pod,
    }


def _quote(incident: Incident, first: int, last: int) -> tuple[str, ...]:
    """Return the frame and the first line of the message, then its other lines, or those of a crash that the rule matches."""
    if incident.wrapped or incident.kind is not IncidentKind.MESSAGE:
        first, last = 0, len(incident.printed)
    lines = [*incident.frame, incident.printed[0].strip()]
    part = slice(max(first, 1), last + 1)
    pairs = zip(incident.lines[part], incident.printed[part], strict=True)
    lines += [printed.strip() for text, printed in pairs if text.strip()]
    return tuple(cut_text(line, MAX_QUOTE) for line in lines[:MAX_LINES])


def _quote_context(incident: Incident) -> tuple[str, ...]:
    return tuple(cut_text(line, MAX_CONTEXT_QUOTE) for line in incident.context)


def find_message(incident: Incident) -> str:
    """Return the first line of the exception's message that is not blank."""
    lines = (incident.message, *incident.lines[1:])
    return next((line.strip() for line in lines if line.strip()), "")


def find_advice(incident: Incident) -> str:
    """Return the advice in the exception's own message; "" without one."""
    text = " ".join(line.strip() for line in (incident.message, *incident.lines[1:]) if line.strip())
    return cut_text(" ".join(list(_find_sentences(text))[:MAX_SENTENCES]), MAX_ADVICE)


def _find_sentences(text: str) -> Iterator[str]:
    return (sentence.strip() for sentence in _SENTENCE_END.split(text) if _ADVICE.match(sentence.strip(" -*•1234567890.()")))


def mask_numbers(text: str) -> str:
    """Return the text with the same digit in place of each whole number, and of each address."""
    return _NUMBER.sub("1", text)


@cache
def find_literals() -> tuple[str, ...]:
    """Return the literals of all rules about logs, of the incident stage, and of reports of success."""
    literals = [literal for rule in BY_SUBJECT[Subject.LOG] for literal in rule.literals]
    stages = (*TRACEBACK_MARKERS, *CRASH_MARKERS, *SUCCESS_LITERALS)
    return _minimize((*STEMS, *stages, *literals))


def is_suspicious(line: str) -> bool:
    """Return whether the line can belong to an incident."""
    return line.startswith(_LINE_STARTS) or bool(_build_automaton().find_matches_as_indexes(line))


@cache
def _build_automaton() -> AhoCorasick:
    return AhoCorasick(find_literals(), implementation=Implementation.DFA)


def _minimize(literals: Iterable[str]) -> tuple[str, ...]:
    """Return the literals without those that contain another one."""
    kept: list[str] = []
    for literal in sorted(set(literals), key=lambda text: (len(text), text)):
        if not any(shorter in literal for shorter in kept):
            kept.append(literal)
    return tuple(kept)
