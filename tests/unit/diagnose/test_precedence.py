"""Which of several rules explains a text follows from the precedence of their groups, not from the order of the groups."""

from __future__ import annotations

from kfjob.joblog.diagnose.engine.incident_reader import IncidentReader
from kfjob.joblog.diagnose.engine.incidents import Mark
from kfjob.joblog.diagnose.engine.matching import find_best_matches, match_rules
from kfjob.joblog.diagnose.engine.states import format_pod
from kfjob.joblog.diagnose.rule import RuleMatch, Subject
from kfjob.joblog.diagnose.rules import GROUPS, RULES, sort_rules
from kfjob.joblog.lines.timestamps import Timestamp
from tests.unit.diagnose.texts import LINES, MESSAGES, PODS

SAMPLES = [text.text for text in (*LINES, *MESSAGES)]
PRECEDENCE = {rule.id: group.precedence for group in GROUPS for rule in group.rules}
TOPIC = {rule.id: group.heading for group in GROUPS for rule in group.rules}


def test_order_of_the_groups_decides_nothing():
    assert sort_rules(reversed(GROUPS)) == sort_rules(GROUPS) == RULES


def test_every_topic_stands_once():
    headings = [group.heading for group in GROUPS]
    assert len(set(headings)) == len(headings)
    assert sum(len(group.rules) for group in GROUPS) == len({rule.id for rule in RULES})


def find_ambiguous(matches: list[RuleMatch]) -> list[tuple[str, str]]:
    """Return the best rule with each rule of another topic that has no lower precedence."""
    ids = [match.rule.id for match in matches]
    return [(ids[0], rule) for rule in ids[1:] if TOPIC[rule] != TOPIC[ids[0]] and PRECEDENCE[rule] <= PRECEDENCE[ids[0]]]


def test_equal_matches_of_several_topics_have_a_precedence():
    ambiguous = []
    for text in SAMPLES:
        reader = IncidentReader()
        for incident in (*reader.feed(text, Mark(1, Timestamp(), 1), lambda: iter(())), *reader.flush()):
            ambiguous += find_ambiguous(find_best_matches(incident))
    assert ambiguous == []


def test_states_of_pods_have_a_precedence():
    states = [format_pod(state) for _, state in PODS]
    assert [pair for text in states for pair in find_ambiguous(list(match_rules(Subject.POD, text)))] == []
