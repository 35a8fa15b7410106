"""What the pods of a trial said, put together. Pure: lines in, findings out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kfjob.errors import Problem
from kfjob.plan import JobPlan
from kfjob.text import plural

MARK = '{"kfjob": "'
SMALL = 64 * 2**20
"""What a container runtime gives /dev/shm; NCCL between the GPUs of a node needs more."""

Fact = dict[str, Any]


@dataclass
class PodSaid:
    """The facts of one pod."""

    pod: str
    node: str = ""
    shm: int | None = None  # bytes of /dev/shm
    dns: dict[str, Fact] = field(default_factory=dict)
    port: Fact | None = None
    ranks: list[Fact] = field(default_factory=list)

    @property
    def gpus(self) -> int | None:
        """As torch counts them in this pod."""
        return max((rank["gpus"] for rank in self.ranks), default=None)


@dataclass
class Heard:
    """All that was said so far."""

    pods: dict[str, PodSaid] = field(default_factory=dict)
    rows: list[Fact] = field(default_factory=list)  # one operation at one size, over all ranks
    collectives: list[Fact] = field(default_factory=list)  # the same of each rank
    table: list[str] = field(default_factory=list)
    errors: list[tuple[str, Fact]] = field(default_factory=list)
    done: Fact | None = None

    def take(self, pod: str, text: str) -> None:
        """A line of a pod's log; what is not ours is left alone."""
        target = text.find(MARK)
        if target < 0:
            return
        try:
            fact = json.loads(text[target:])
        except ValueError:  # cut in two by the log's rotation
            return
        kind = fact.pop("kfjob")
        said = self.pods.setdefault(pod, PodSaid(pod))
        match kind:
            case "node":
                said.shm = fact["shm"]
            case "dns":
                said.dns[fact["what"]] = fact
            case "port":
                said.port = fact
            case "rank":
                said.ranks.append(fact)
            case "error" | "late":
                self.errors.append((pod, {"kind": kind, **fact}))
            case _:
                self._take_of_all(kind, fact)

    def _take_of_all(self, kind: str, fact: Fact) -> None:
        match kind:
            case "collective":
                self.collectives.append(fact)
            case "summary":
                self.rows.append(fact)
            case "table":
                self.table.append(fact["line"])
            case "done":
                self.done = fact

    def problems(self, plan: JobPlan) -> list[Problem]:
        """What stands in the way of training, and what is merely odd."""
        found = [problem for said in self.pods.values() for problem in _of_a_pod(said, plan)]
        for pod, fact in self.errors:
            found.append(_of_a_rank(pod, fact))
        largest = max((row["bytes"] for row in self.rows), default=0)
        for row in self.rows:
            what = f"`{row['op']}` of {row['bytes']} bytes"
            if row["wrong"]:
                title = f"{what} gives wrong values on {_ranks(row['wrong'])}"
                found.append(
                    _error(title, hint="a card, a cable or a driver is faulty: take the node out and run its diagnostics")
                )
            if row["outliers"] and row["bytes"] == largest:  # at small sizes much is noise; the table marks all
                title = f"{what} is slower on {_ranks(row['outliers'])} than on the others"
                found.append(Problem(title=title, severity="warning"))
        if self.done and self.done["wrong"] and not any(row["wrong"] for row in self.rows):
            found.append(_error("a collective is not the two that it is made of", detail="\n".join(_broken(self.table))))
        return found

    def silent_pods(self, pods: Iterable[str]) -> list[str]:
        """Pods whose program never started."""
        return [pod for pod in pods if pod not in self.pods]


def _of_a_pod(said: PodSaid, plan: JobPlan) -> list[Problem]:
    where = f"pod `{said.pod}`{f' on node `{said.node}`' if said.node else ''}"
    found = []
    if lost := [name for name, fact in said.dns.items() if not fact["ok"]]:
        detail = "; ".join(dict.fromkeys(said.dns[name]["why"] for name in lost))
        hint = "is the cluster's DNS up? `kubectl -n kube-system get pods -l k8s-app=kube-dns`"
        found.append(_error(f"{where} cannot resolve {_named(lost)}", detail=detail, hint=hint))
    if said.port and not said.port["ok"]:
        hint = "a network policy or a security group may be in the way, or the first pod has not started"
        found.append(_error(f"{where} cannot reach {said.port['what']}", detail=said.port["why"], hint=hint))
    if plan.resources.gpus and said.gpus is not None and said.gpus != plan.resources.gpus:
        title = f"{where}: torch sees {plural(said.gpus, 'GPU')}, and the job requests {plan.resources.gpus}"
        found.append(_error(title, hint="is torch in this image built for CUDA, and does the driver fit it? `nvidia-smi`"))
    if said.shm is not None and said.shm <= SMALL and plan.resources.gpus > 1:
        title = f"{where}: /dev/shm has {said.shm // 2**20} MiB, too little for NCCL and data loaders"
        found.append(Problem(title=title, severity="warning", hint="remove `shared_memory: 0` from the spec"))
    return found


def _of_a_rank(pod: str, fact: Mapping[str, Any]) -> Problem:
    where = f"rank {fact['rank']} in pod `{pod}`"
    if fact["kind"] == "late":
        hint = "the rank that is not there is at fault; look at those that say nothing, and at their network"
        return _error(f"{where} waited {fact['seconds']:g} s in {fact['doing']}, and gave up", hint=hint)
    return _error(f"{where} failed in {fact['doing']}", detail=str(fact["why"]))


def _error(title: str, *, detail: str = "", hint: str = "") -> Problem:
    return Problem(title=title, detail=detail or None, hint=hint or None)


def _broken(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if "BROKEN" in line]


def _named(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown  # noqa: PLR2004 - enough to see which


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
