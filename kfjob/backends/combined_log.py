"""Split a log of several pods, which kfjob or kubectl has printed as one text with the pod's name before each line.

train-worker-0 | step 10 loss 2.31                kfjob logs
[pod/train-worker-0/pytorch] step 10 loss 2.31    kubectl logs --prefix
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from kfjob.base.units import KIB, MIB

SAMPLE = 16 * KIB
"""Bytes of a log in which the names of pods are searched."""
MAX_PODS = 4096
"""Pods whose lines go to files of their own."""
_MIN_SHARE = 0.9
"""Share of the lines that have a prefix: notes of kfjob may stand between them."""
_NAME = r"[a-z0-9](?:[-a-z0-9.]{0,250}[a-z0-9])?"
_COLOUR = rb"(?:\x1b\[[\d;]*m)*"
_KUBECTL = re.compile(rf"\[pod/(?P<pod>{_NAME})/[^\]\s]{{1,253}}\] ".encode())
_KFJOB = re.compile(rb"^" + _COLOUR + rf"(?P<pod>{_NAME}) *\| ".encode() + _COLOUR)
_REPLICA = re.compile(rb"-(?:master|worker)-\d+$")
"""The end of the name of each pod that the operator creates, and of each pod of the local backend."""
_NUMBERED = re.compile(rb"-\d+$")


class Prefix(NamedTuple):
    """What stands before each line of a log of several pods."""

    pattern: re.Pattern[bytes]
    first_pod: bytes


def find_prefix(sample: bytes) -> Prefix | None:
    """Return the prefix that names the pod of each line; None for the log of one pod.

    A table may have a word and `|` in each line, too. So kfjob's prefix needs names of replicas, or several numbered names
    in a column of one width.
    """
    lines = [line for line in sample.split(b"\n") if line.strip()]
    for pattern in (_KUBECTL, _KFJOB):
        matches = [match for line in lines if (match := pattern.match(line))]
        if not matches or len(matches) < _MIN_SHARE * len(lines):
            continue
        names = {match["pod"] for match in matches}
        is_column = len({match.end("pod") if pattern is _KUBECTL else _find_bar(match) for match in matches}) == 1
        are_pods = all(_REPLICA.search(name) for name in names)
        are_numbered = len(names) > 1 and is_column and all(_NUMBERED.search(name) for name in names)
        if pattern is _KUBECTL or are_pods or are_numbered:
            return Prefix(pattern, matches[0]["pod"])
    return None


def split_log(file: Path, prefix: Prefix, folder: Path) -> dict[str, Path]:
    """Write the lines of each pod to a file of its own; return the files by pod.

    A line without a prefix belongs to the pod of the line before it. The files have numbers, because the name of a pod can be
    as long as that of a file, and `x.previous` would be the previous log of `x`.
    """
    folder.mkdir(exist_ok=True)
    paths: dict[bytes, Path] = {}
    names = {prefix.first_pod}
    pod, starts_line = prefix.first_pod, True
    with file.open("rb") as log:
        while lines := log.readlines(MIB):
            parts: dict[bytes, list[bytes]] = defaultdict(list)
            for line in lines:
                match = prefix.pattern.match(line) if starts_line else None
                if match and (match["pod"] in names or len(names) < MAX_PODS):
                    pod = match["pod"]
                    names.add(pod)
                starts_line = line.endswith(b"\n")
                parts[pod].append(line[match.end() :] if match else line)
            for name, texts in parts.items():
                path = paths.setdefault(name, folder / f"{len(paths)}.log")
                with path.open("ab") as out:
                    out.writelines(texts)
    return {name.decode(): path for name, path in paths.items()}


def is_log_of_one(pod: str, prefix: Prefix, names: Collection[str], *, has_other_logs: bool) -> bool:
    """Return whether a file is the log of `pod`, whose program prints lines with the names of other pods.

    So it is if the file has the name of a replica and no line has it, or if a file beside others names one pod alone.
    """
    if pod in names:
        return False
    return bool(_REPLICA.search(pod.encode())) or (has_other_logs and len(names) == 1 and prefix.pattern is _KFJOB)


def _find_bar(match: re.Match[bytes]) -> int:
    return match[0].index(b"|") - match.start("pod")
