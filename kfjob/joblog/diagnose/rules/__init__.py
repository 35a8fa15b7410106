"""All rules by topic, and which topic says more about a text that rules of several topics match.

States, events and queue statuses take the first match in the order of `RULES`. Logs take the best match (`engine.matching`),
and of equally good ones the first. The order of `GROUPS` is that of the reference page, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, auto
from typing import NamedTuple

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
    rules: tuple[Rule, ...]
    meaning: str  # what its rules are about, in a few words


GROUPS: tuple[Group, ...] = (
    Group(
        "Harmless messages of healthy jobs",
        Precedence.HARMLESS,
        noise.RULES,
        "lines that read like errors, and that every healthy job may print",
    ),
    Group(
        "Networks between processes",
        Precedence.DETAIL,
        networks.RULES,
        "NCCL, libfabric, gloo, proxies, certificates and HTTP between processes and services",
    ),
    Group(
        "CUDA and its driver",
        Precedence.DETAIL,
        drivers.RULES,
        "the driver, its libraries and the state of the card do not let CUDA work, or a kernel failed",
    ),
    Group(
        "Rendezvous",
        Precedence.DETAIL,
        rendezvous.RULES,
        "the agents or the processes do not find each other: address, port, name, id, store, etcd",
    ),
    Group(
        "Accelerators and their network",
        Precedence.COMPONENT,
        accelerators.RULES,
        "a GPU has no memory, is missing, broken, too old or used twice, or NCCL finds no network",
    ),
    Group(
        "The set-up of a training",
        Precedence.COMPONENT,
        trainers.RULES,
        "the trainer's arguments, metrics, registries and engines do not fit each other",
    ),
    Group(
        "Libraries for training and serving",
        Precedence.COMPONENT,
        frameworks.RULES,
        "transformers, TRL, PEFT, vLLM, Ray or DeepSpeed refuse what the program asks for",
    ),
    Group(
        "Configuration, versions and services",
        Precedence.COMPONENT,
        settings.RULES,
        "Hydra, YAML, packages in a wrong version, and services that refuse or do not answer",
    ),
    Group(
        "Models on their devices",
        Precedence.COMPONENT,
        models.RULES,
        "dtypes, shapes, parallel sizes, DDP and FSDP do not fit the model or the job",
    ),
    Group(
        "Builds and binary packages",
        Precedence.SYSTEM,
        builds.RULES,
        "code that is compiled at start, and packages that were built for another torch, CUDA, libc or GPU",
    ),
    Group(
        "Memory, threads and files",
        Precedence.SYSTEM,
        resources.RULES,
        "limits of the container or the machine: memory, threads, open files, folders for caches",
    ),
    Group(
        "Launchers",
        Precedence.SYSTEM,
        launchers.RULES,
        "torchrun, accelerate, DeepSpeed or Slurm could not start the processes, or were stopped",
    ),
    Group(
        "Files and accounts",
        Precedence.SYSTEM,
        files.RULES,
        "files of weights and data that cannot be read, and accounts for storage and trackers",
    ),
    Group(
        "Programs and their environment",
        Precedence.PROGRAM,
        programs.RULES,
        "Python modules, arguments, paths, permissions, disks, and exceptions without a rule of their own",
    ),
    Group(
        "The hub",
        Precedence.PROGRAM,
        hub.RULES,
        "the Hugging Face hub refuses a token, does not have a repository, or is not reachable",
    ),
    Group(
        "Data and checkpoints",
        Precedence.PROGRAM,
        data.RULES,
        "data sets, tokenizers and checkpoints are missing, damaged or belong to another model",
    ),
    Group("Training", Precedence.PROGRAM, training.RULES, "the training runs, but hangs, diverges, or each node trains alone"),
    Group(
        "Images and registries",
        Precedence.POD,
        images.RULES,
        "the image cannot be pulled, does not exist, or is built for another architecture",
    ),
    Group(
        "Pods, scheduling and limits",
        Precedence.STATE,
        cluster.RULES,
        "the pod finds no node, cannot start, was evicted or killed, or the job exceeded a limit",
    ),
    Group("The local backend", Precedence.STATE, local.RULES, "an agent or etcd on this machine"),
    Group(
        "Kubernetes events and queues",
        Precedence.STATE,
        cluster_events.RULES,
        "the operator cannot create pods, a claim has no volume, or the job waits in a queue",
    ),
    Group("Crashes of native code", Precedence.END, crashes.RULES, "C++ code, the C library or the CPU ended a process"),
    Group(
        "Exit codes and signals", Precedence.END, exit_codes.RULES, "how a process or container ended, where nothing says why"
    ),
    Group(
        "Effects of another process's failure",
        Precedence.EFFECT,
        peers.RULES,
        "lost connections and timeouts; another process failed first",
    ),
    Group("Families of messages", Precedence.FAMILY, general.RULES, "words that many libraries share"),
    Group("Scripts and commands", Precedence.SCRIPT, commands.RULES, "shell scripts and the commands in them"),
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
