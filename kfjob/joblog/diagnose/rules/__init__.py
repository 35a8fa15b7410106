"""All rules by topic, and which topic says more about a text that rules of several topics match.

States, events and queue statuses take the first match in the order of `RULES`. Logs take the best match (`engine.matching`),
and of equally good ones the first. The order of `GROUPS` is that of the reference page, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, auto
from types import ModuleType
from typing import NamedTuple, cast

from kfjob.joblog.diagnose.rule import Rule, Subject
from kfjob.joblog.diagnose.rules import (
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


class Precedence(IntEnum):
    """Which topic says more about a text, the best first."""

    HARMLESS = auto()  # the whole line of one library is known, so it is no error although it reads like one
    DETAIL = auto()  # the message of one layer below the process group, with its number or its address
    COMPONENT = auto()  # a library or a device says what it needs; the layers above use its words for their own cases
    SYSTEM = auto()  # what a build, memory or a file lacks, whichever component asks
    PROGRAM = auto()  # Python's own errors, and what a program does with its data
    POD = auto()  # why an image does not start, before the state that follows from it
    STATE = auto()  # states and events of pods
    END = auto()  # a signal or an exit code: how a process ended, not why
    EFFECT = auto()  # the failure of another process
    FAMILY = auto()  # words that many messages share
    SCRIPT = auto()  # the shell's report of a command that failed


class Group(NamedTuple):
    """The rules about one topic."""

    heading: str
    precedence: Precedence
    module: ModuleType

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, the one to try first at the top."""
        return cast("tuple[Rule, ...]", self.module.RULES)

    @property
    def meaning(self) -> str:
        """What the rules are about, in one sentence."""
        return (self.module.__doc__ or "").partition("\n")[0]


GROUPS: tuple[Group, ...] = (
    Group("Harmless messages of healthy jobs", Precedence.HARMLESS, noise),
    Group("Networks between processes", Precedence.DETAIL, networks),
    Group("CUDA and its driver", Precedence.DETAIL, drivers),
    Group("Rendezvous", Precedence.DETAIL, rendezvous),
    Group("Accelerators and their network", Precedence.COMPONENT, accelerators),
    Group("The set-up of a training", Precedence.COMPONENT, trainers),
    Group("Libraries for training and serving", Precedence.COMPONENT, frameworks),
    Group("Configuration, versions and services", Precedence.COMPONENT, settings),
    Group("Models on their devices", Precedence.COMPONENT, models),
    Group("Builds and binary packages", Precedence.SYSTEM, builds),
    Group("Memory, threads and files", Precedence.SYSTEM, resources),
    Group("Launchers", Precedence.SYSTEM, launchers),
    Group("Files and accounts", Precedence.SYSTEM, files),
    Group("Programs and their environment", Precedence.PROGRAM, programs),
    Group("The hub", Precedence.PROGRAM, hub),
    Group("Data and checkpoints", Precedence.PROGRAM, data),
    Group("Training", Precedence.PROGRAM, training),
    Group("Images and registries", Precedence.POD, images),
    Group("Pods, scheduling and limits", Precedence.STATE, cluster),
    Group("The local backend", Precedence.STATE, local),
    Group("Kubernetes events and queues", Precedence.STATE, cluster_events),
    Group("Crashes of native code", Precedence.END, crashes),
    Group("Exit codes and signals", Precedence.END, exit_codes),
    Group("Effects of another process's failure", Precedence.EFFECT, peers),
    Group("Families of messages", Precedence.FAMILY, general),
    Group("Scripts and commands", Precedence.SCRIPT, commands),
)


def sort_rules(groups: Iterable[Group]) -> tuple[Rule, ...]:
    """Return the rules of the groups in the order in which they are tried, which does not depend on the order of the groups."""
    ordered = sorted(groups, key=lambda group: (group.precedence, group.heading))
    return tuple(rule for group in ordered for rule in group.rules)


RULES: tuple[Rule, ...] = sort_rules(GROUPS)
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
