"""All rules in the order in which they are tried: the first match counts."""

from __future__ import annotations

from kfjob.observe.diagnose.rule import Rule, Subject
from kfjob.observe.diagnose.rules import (
    accelerators,
    cluster,
    cluster_events,
    data,
    exit_codes,
    images,
    local,
    noise,
    peers,
    programs,
    rendezvous,
    training,
)

GROUPS: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("Harmless messages of healthy jobs", noise.RULES),
    ("Rendezvous", rendezvous.RULES),
    ("Accelerators and their network", accelerators.RULES),
    ("Programs and their environment", programs.RULES),
    ("Data, hub and checkpoints", data.RULES),
    ("Training", training.RULES),
    ("Images and registries", images.RULES),
    ("Pods, scheduling and limits", cluster.RULES),
    ("The local backend", local.RULES),
    ("Kubernetes events and queues", cluster_events.RULES),
    ("Exit codes and signals", exit_codes.RULES),
    ("Effects of another process's failure", peers.RULES),
)
RULES: tuple[Rule, ...] = tuple(rule for _, rules in GROUPS for rule in rules)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
BY_SUBJECT: dict[Subject, tuple[Rule, ...]] = {
    subject: tuple(rule for rule in RULES if rule.subject is subject) for subject in Subject
}
