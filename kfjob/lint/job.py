"""What rules look at: the spec, the plan, and the PyTorchJob that it compiles to, overrides and all."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kfjob.compile.pytorchjob import pytorchjob
from kfjob.plan import JobPlan
from kfjob.spec.api_objects import find_training_container
from kfjob.spec.job import JobSpec


@dataclass(frozen=True)
class Job:
    """One job under the eyes of the rules."""

    spec: JobSpec
    plan: JobPlan
    user_manifest: Mapping[str, Any] | None = None  # the PyTorchJob where somebody wrote it himself

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The PyTorchJob as it would be submitted."""
        return self.user_manifest or pytorchjob(self.plan)

    @cached_property
    def pods(self) -> tuple[Mapping[str, Any], ...]:
        """The pod specs of its replicas."""
        replicas = self.manifest["spec"].get("pytorchReplicaSpecs") or {}
        templates = ((replica or {}).get("template") or {} for replica in replicas.values())
        return tuple(template.get("spec") or {} for template in templates)

    @cached_property
    def training(self) -> tuple[Mapping[str, Any], ...]:
        """The training container of each replica."""
        return tuple(filter(None, map(find_training_container, self.pods)))

    @cached_property
    def env(self) -> Mapping[str, str]:
        """The plain variables of the training containers."""
        return {v["name"]: v["value"] for c in self.training for v in c.get("env") or () if isinstance(v.get("value"), str)}

    def variable(self, name: str, *, unset: str, elsewhere: str) -> str:
        """A variable's value as the program meets it; `elsewhere` if a secret or a config map has it."""
        said = {
            v["name"]: v.get("value", "") if "valueFrom" not in v else elsewhere
            for c in self.training
            for v in c.get("env") or ()
        }
        return str(said.get(name, unset))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The command's words, those of a line that is handed to a shell one by one."""
        return tuple(part for word in self.plan.command for part in _parts(word))

    @cached_property
    def processes(self) -> int | None:
        """Training processes on each node; None for `auto`, `gpu` and `cpu` where only the node knows."""
        if self.spec.train and self.spec.train.spawn:
            return self.spec.train.spawn
        said = self.plan.processes_per_node
        if said.isdecimal():
            return int(said)
        return self.plan.resources.gpus or None if said in ("auto", "gpu") else None


def _parts(word: str) -> Iterator[str]:
    if not any(space in word for space in (" ", "\t", "\n")):
        yield word
        return
    try:
        yield from shlex.split(word, comments=True)
    except ValueError:
        yield from word.split()
