"""Every rule, in the order in which they are tried: the first that knows a line has it."""

from __future__ import annotations

from kfjob.observe.diagnose.rule import Rule, Subject
from kfjob.observe.diagnose.rules import (
    accelerators,
    cluster,
    cluster_events,
    data,
    exit_codes,
    noise,
    peers,
    programs,
    rendezvous,
    training,
)

GROUPS: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("Noise of healthy runs", noise.RULES),
    ("Rendezvous", rendezvous.RULES),
    ("Accelerators and their network", accelerators.RULES),
    ("Programs and their environment", programs.RULES),
    ("Data, hub and checkpoints", data.RULES),
    ("Training", training.RULES),
    ("Pods, images and scheduling", cluster.RULES),
    ("What the cluster wrote down, and queues", cluster_events.RULES),
    ("How processes and pods ended", exit_codes.RULES),
    ("What the failure of another process looks like", peers.RULES),
)
RULES: tuple[Rule, ...] = tuple(rule for _, rules in GROUPS for rule in rules)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
OF: dict[Subject, tuple[Rule, ...]] = {subject: tuple(rule for rule in RULES if rule.subject is subject) for subject in Subject}
