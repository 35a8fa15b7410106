"""All rules, in the order in which they are tried.

States, events and queue statuses take the first match. Logs take the best match (`matching.explain`); the order decides between
equally good ones.
"""

from __future__ import annotations

from kfjob.observe.diagnose.rule import Rule, Subject
from kfjob.observe.diagnose.rules import (
    accelerators,
    builds,
    cluster,
    cluster_events,
    commands,
    crashes,
    data,
    drivers,
    exit_codes,
    files,
    frameworks,
    general,
    hub,
    images,
    launchers,
    local,
    models,
    networks,
    noise,
    peers,
    programs,
    rendezvous,
    resources,
    settings,
    trainers,
    training,
)

GROUPS: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("Harmless messages of healthy jobs", noise.RULES),
    ("Networks between processes", networks.RULES),
    ("CUDA and its driver", drivers.RULES),
    ("Rendezvous", rendezvous.RULES),
    ("Accelerators and their network", accelerators.RULES),
    ("The set-up of a training", trainers.RULES),
    ("Libraries for training and serving", frameworks.RULES),
    ("Configuration, versions and services", settings.RULES),
    ("Models on their devices", models.RULES),
    ("Builds and binary packages", builds.RULES),
    ("Memory, threads and files", resources.RULES),
    ("Launchers", launchers.RULES),
    ("Files and accounts", files.RULES),
    ("Programs and their environment", programs.RULES),
    ("The hub", hub.RULES),
    ("Data and checkpoints", data.RULES),
    ("Training", training.RULES),
    ("Images and registries", images.RULES),
    ("Pods, scheduling and limits", cluster.RULES),
    ("The local backend", local.RULES),
    ("Kubernetes events and queues", cluster_events.RULES),
    ("Crashes of native code", crashes.RULES),
    ("Exit codes and signals", exit_codes.RULES),
    ("Effects of another process's failure", peers.RULES),
    ("Families of messages", general.RULES),
    ("Scripts and commands", commands.RULES),
)
RULES: tuple[Rule, ...] = tuple(rule for _, rules in GROUPS for rule in rules)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
BY_SUBJECT: dict[Subject, tuple[Rule, ...]] = {
    subject: tuple(rule for rule in RULES if rule.subject is subject) for subject in Subject
}


def check_ids(*ids: str) -> tuple[str, ...]:
    """Return the ids of rules.

    Raises:
        KeyError: No rule has one of the ids.
    """
    return tuple(BY_ID[name].id for name in ids)
