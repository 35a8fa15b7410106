"""Every rule, in the order in which they are tried: the first that knows a line has it."""

from __future__ import annotations

from kfjob.observe.diagnose.rule import Rule, Subject
from kfjob.observe.diagnose.rules import (
    accelerators,
    cluster,
    data,
    exits,
    noise,
    peers,
    programs,
    recorded,
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
    ("What the cluster wrote down, and queues", recorded.RULES),
    ("How processes and pods ended", exits.RULES),
    ("What the failure of another process looks like", peers.RULES),
)
RULES: tuple[Rule, ...] = tuple(rule for _, rules in GROUPS for rule in rules)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
OF: dict[Subject, tuple[Rule, ...]] = {subject: tuple(rule for rule in RULES if rule.subject is subject) for subject in Subject}

COARSE = (
    "rror",
    "arn",
    "WARN",
    "xception",
    "ailed",
    "FAILED",
    "annot",
    "c10d]",
    "NCCL",
    "ignal",
    "endezvous",
    "etcd",
    "illed",
    "not found",
    "enied",
    "No such",
    "No module",
    "mismatch",
    "Xid",
    "ffer",
    "Outcome ",
    "libfabric",
    "OFI",
    "unrecognized",
    "raceback",
    "gated",
    "time      :",
    "[W",
    "]:W",
    "OMP_",
    "destroy_process_group",
    "No space",
    "fallen",
    "too old",
)
"""One of these is in every line that a log rule can know, and in every warning that does not begin with glog's W."""


def suspicious(line: str) -> bool:
    """Whether the line can matter at all; nearly all lines end here, so the loop is written out (`any` costs twice as much)."""
    if line[:1] == "W":
        return True
    for literal in COARSE:  # noqa: SIM110 - see above
        if literal in line:
            return True
    return False
