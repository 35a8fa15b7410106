"""Parse the log lines of a trial's pods, and find the problems in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.base.parsing import parse_json
from kfjob.base.text import join_names, plural
from kfjob.base.units import MIB
from kfjob.plan import JobPlan

PREFIX = '{"kfjob": "'
DEFAULT_SHM = 64 * MIB
"""The size of /dev/shm that container runtimes use by default; NCCL between the GPUs of a node needs more."""


class PodReport(Struct):
    """What a pod reported."""

    pod: str
    node: str = ""
    shm: int | None = None  # bytes of /dev/shm
    dns: dict[str, JsonObject] = field(default_factory=dict)
    port: JsonObject | None = None
    ranks: list[JsonObject] = field(default_factory=list)

    @property
    def gpus(self) -> int | None:
        """The number of GPUs that torch sees in this pod."""
        return max((rank["gpus"] for rank in self.ranks), default=None)


class TrialLog(Struct):
    """Collects the records in the logs of a trial's pods."""

    pods: dict[str, PodReport] = field(default_factory=dict)
    rows: list[JsonObject] = field(default_factory=list)  # one per operation and size, over all ranks
    collectives: list[JsonObject] = field(default_factory=list)  # one per operation, size and rank
    table: list[str] = field(default_factory=list)
    errors: list[tuple[str, JsonObject]] = field(default_factory=list)
    done: JsonObject | None = None

    def add_line(self, pod: str, text: str) -> None:
        """Add the record in a log line; ignore lines without a record."""
        start = text.find(PREFIX)
        if start < 0:
            return
        try:
            record = parse_json(text[start:])
        except (ValueError, RecursionError):  # log rotation has cut the line
            return
        kind = record.pop("kfjob")
        report = self.pods.setdefault(pod, PodReport(pod))
        match kind:
            case "node":
                report.shm = record["shm"]
            case "dns":
                report.dns[record["what"]] = record
            case "port":
                report.port = record
            case "rank":
                report.ranks.append(record)
            case "error" | "late":
                self.errors.append((pod, {"kind": kind, **record}))
            case _:
                self._add_shared_record(kind, record)

    def _add_shared_record(self, kind: str, record: JsonObject) -> None:
        match kind:
            case "collective":
                self.collectives.append(record)
            case "summary":
                self.rows.append(record)
            case "table":
                self.table.append(record["line"])
            case "done":
                self.done = record

    def find_problems(self, plan: JobPlan) -> list[Problem]:
        """Return errors and warnings about pods, ranks and collectives."""
        problems = [problem for report in self.pods.values() for problem in _pod_problems(report, plan)]
        problems += [_rank_problem(pod, record) for pod, record in self.errors]
        largest = max((row["bytes"] for row in self.rows), default=0)
        for row in self.rows:
            operation = f"`{row['op']}` of {row['bytes']} bytes"
            if row["wrong"]:
                hint = "a GPU, a cable or a driver is faulty: cordon the node and run its diagnostics"
                problems.append(_error(f"{operation} gives wrong values on {_format_ranks(row['wrong'])}", hint=hint))
            if row["outliers"] and row["bytes"] == largest:  # small sizes are noisy; the table marks them all
                title = f"{operation} is slower on {_format_ranks(row['outliers'])} than on the other ranks"
                problems.append(Problem(title=title, severity="warning"))
        if self.done and self.done["wrong"] and not any(row["wrong"] for row in self.rows):
            broken = [line for line in self.table if "BROKEN" in line]
            problems.append(_error("a collective differs from the two collectives that it equals", detail="\n".join(broken)))
        return problems

    def silent_pods(self, pods: Iterable[str]) -> list[str]:
        """Return the pods that printed no record: their program never started."""
        return [pod for pod in pods if pod not in self.pods]


def _pod_problems(report: PodReport, plan: JobPlan) -> list[Problem]:
    pod = f"pod `{report.pod}`{f' on node `{report.node}`' if report.node else ''}"
    gpus = plan.resources.gpus
    problems = []
    if unresolved := [name for name, record in report.dns.items() if not record["ok"]]:
        detail = "; ".join(dict.fromkeys(report.dns[name]["why"] for name in unresolved))
        hint = "check the cluster's DNS: `kubectl -n kube-system get pods -l k8s-app=kube-dns`"
        names = join_names((f"`{name}`" for name in unresolved), limit=3)
        problems.append(_error(f"{pod} cannot resolve {names}", detail=detail, hint=hint))
    if report.port and not report.port["ok"]:
        hint = "check network policies and security groups, and whether the first pod has started"
        problems.append(_error(f"{pod} cannot reach {report.port['what']}", detail=report.port["why"], hint=hint))
    if gpus and report.gpus is not None and report.gpus != gpus:
        title = f"{pod}: torch sees {plural(report.gpus, 'GPU')}, but the job requests {gpus}"
        hint = "check that torch in this image is built for CUDA, and that the driver matches; `nvidia-smi`"
        problems.append(_error(title, hint=hint))
    if report.shm is not None and report.shm <= DEFAULT_SHM and gpus > 1:
        title = f"{pod}: /dev/shm has {report.shm // MIB} MiB, too little for NCCL and data loaders"
        problems.append(Problem(title=title, severity="warning", hint="remove `shared_memory: 0` from the spec"))
    return problems


def _rank_problem(pod: str, record: JsonMapping) -> Problem:
    rank = f"rank {record['rank']} in pod `{pod}`"
    if record["kind"] == "late":
        hint = "look for the missing rank: check pods without output, and their network"
        return _error(f"{rank} timed out after {record['seconds']:g} s in {record['doing']}", hint=hint)
    return _error(f"{rank} failed in {record['doing']}", detail=str(record["why"]))


def _error(title: str, *, detail: str = "", hint: str = "") -> Problem:
    return Problem(title=title, detail=detail or None, hint=hint or None)


def _format_ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
