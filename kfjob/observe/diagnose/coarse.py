"""The first look at a line: whether any rule can know it."""

from __future__ import annotations

LITERALS = (
    "rror",
    "arn",
    "WARN",
    "xception",
    "ailed",
    "FAILED",
    "annot",
    "c10d]",
    "GroupNCCL",
    "NCCL op",
    "NCCL comm",
    "ignal",
    "endezvous",
    "etcd",
    "illed",
    "not found",
    "Not Found",
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

GLOG_WARNINGS = (" W0", " W1", "\nW0", "\nW1")
"""The same for warnings that do, where the line may have a time before it: after the W glog writes the month."""


def suspicious(line: str) -> bool:
    """Whether the line can matter at all; nearly all lines end here, so the loop is written out (`any` costs twice as much)."""
    if line[:1] == "W":
        return True
    for literal in LITERALS:  # noqa: SIM110 - see above
        if literal in line:
            return True
    return False
