"""The input of the rules: the spec, the plan, and the job on a cluster after `overrides` were merged."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from kfjob.base.common_types import JsonMapping
from kfjob.kinds.base import PodTemplate
from kfjob.kinds.registry import get_kind
from kfjob.lint.script import Script
from kfjob.plan import JobPlan
from kfjob.plan.unconnected_programs import UnconnectedProgram, find_unconnected_nodes
from kfjob.shell.run_length import split_scripts
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import join_path

CONTAINER_LISTS = ("initContainers", "containers")
"""The fields of a pod that hold containers."""


class Job(Struct, frozen=True, dict=True):
    """One job that the rules check."""

    spec: JobSpec
    plan: JobPlan
    manifest: JsonMapping  # the job that would be submitted
    is_user_manifest: bool = False  # whether a user wrote the manifest, and the spec was read from it
    script: Script | None = None  # the script that the command starts, if this machine has it
    etcd_image: str = ""  # of the etcd that the user's manifest creates beside the job
    role: str | None = None  # Master or Worker: only its pods; None: all pods
    shell_script: Script | None = None  # the file that a shell reads, if this machine has it: `bash run.sh`
    objects: tuple[JsonMapping, ...] = ()  # that would be submitted, the job among them

    @cached_property
    def pod_templates(self) -> tuple[PodTemplate, ...]:
        """The pod template of each replica."""
        templates = get_kind(self.manifest).read_pod_templates(self.manifest, self.objects)
        return tuple(template for template in templates if self.role in (None, template.role))

    @cached_property
    def pods(self) -> tuple[JsonMapping, ...]:
        """The pod spec of each replica."""
        return tuple(template.spec for template in self.pod_templates)

    @cached_property
    def training_containers(self) -> tuple[JsonMapping, ...]:
        """The training container of each replica."""
        pairs = ((template, item) for template in self.pod_templates for item in template.spec.get("containers") or ())
        return tuple(item for template, item in pairs if item.get("name") == template.training_container)

    def find_container_path(self, container: JsonMapping, field: str) -> str:
        """Return the path of a field of a container: in the user's manifest, or else only `overrides`, which added the field.

        A path in the manifest begins with `overrides`, too, because that has the form of the manifest.
        """
        if not self.is_user_manifest:
            return "overrides"
        for template in get_kind(self.manifest).read_pod_templates(self.manifest, self.objects):
            for part in CONTAINER_LISTS:
                for index, other in enumerate(template.spec.get(part) or ()):
                    if other is container:
                        return join_path(("overrides", *template.path, part, index, field))
        return "overrides"

    @cached_property
    def env(self) -> Mapping[str, str]:
        """The variables of the training containers that have plain values."""
        return {
            variable["name"]: variable["value"]
            for container in self.training_containers
            for variable in container.get("env") or ()
            if isinstance(variable.get("value"), str)
        }

    def list_variables(self, *, referenced: str = "") -> Mapping[str, str]:
        """Return every variable of the training containers; those from a secret, a config map or a field are `referenced`."""
        return {
            variable["name"]: variable.get("value", "") if "valueFrom" not in variable else referenced
            for container in self.training_containers
            for variable in container.get("env") or ()
        }

    def read_variable(self, name: str, *, unset: str, referenced: str) -> str:
        """Return the variable's value in the program; `referenced` if it comes from a secret, a config map or a field."""
        return str(self.list_variables(referenced=referenced).get(name, unset))

    @cached_property
    def unconnected(self) -> UnconnectedProgram | None:
        """The program of which every node trains a copy of its own."""
        is_connected = self.script is not None and self.script.connects_nodes
        return None if is_connected else find_unconnected_nodes(self.spec, self.env.keys())

    @cached_property
    def unconnected_in_script(self) -> UnconnectedProgram | None:
        """The same for a program that `shell_script` starts."""
        if self.shell_script is None:
            return None
        spec = self.spec.model_copy(update={"command": ("bash", "-c", self.shell_script.text), "args": ()})
        return find_unconnected_nodes(spec, self.env.keys())

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of the command; a command line for a shell is split into its words."""
        return tuple(split_scripts(self.plan.words))

    @property
    def program_field(self) -> str:
        """The field that names the program: `args` if only the image's own entry point stands before it."""
        return "args" if self.spec.args and not self.spec.command else "command"

    @cached_property
    def processes(self) -> int | None:
        """Training processes on each node; None for `auto`, `gpu` and `cpu` if only the node knows their number."""
        if self.spec.train and self.spec.train.spawn:
            return self.spec.train.spawn
        processes = self.plan.processes_per_node
        if processes.isdecimal():
            return int(processes)
        return self.plan.resources.gpus or None if processes in ("auto", "gpu") else None
