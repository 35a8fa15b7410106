"""JobSpec: the spec that a user writes, validated field by field. Pure: this module uses no cluster, clock or file.

A field that the user omits is None or empty here. `kfjob.plan` chooses its value, and records the origin of every choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from kfjob.base.errors import Problem
from kfjob.base.text import plural
from kfjob.joblog.progress.pattern import PROGRESS_GROUPS, check_pattern
from kfjob.objects import names
from kfjob.shell.commands import Launcher
from kfjob.spec import instances
from kfjob.spec.fields import (
    ENV_NAME_PATTERN,
    Arguments,
    Command,
    DnsLabel,
    EnvValue,
    LabelValue,
    MetadataKey,
    ObjectName,
    SecretRef,
    SharedMemory,
    find_duplicate,
)
from kfjob.spec.master import MasterField, find_master_problems
from kfjob.spec.pod import EnvEntry, EnvFromSource, EnvVarSource, Pod, Resources
from kfjob.spec.rendezvous import Elastic, Rendezvous, RendezvousField, TorchrunOptions
from kfjob.spec.repair import check_fields
from kfjob.spec.scheduling import Restarts, RestartsField, RunPolicy, Scheduling
from kfjob.spec.volumes import Volume
from kfjob.spec.watchdog import Watchdog
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.validation.models import FieldProblem, SpecModel, field_error, field_errors, two_programs_error
from kfjob.validation.number_words import suggest_number
from kfjob.validation.positions import Positions
from kfjob.validation.root_model import root_model
from kfjob.validation.suggestions import suggest_choice

__all__ = ["SPEC_VERSION", "JobSpec", "Rendezvous", "Resources", "Restarts", "Volume"]

SPEC_VERSION = 1
SECRET_VARIABLES = {"hub_token": "HF_TOKEN", "wandb_key": "WANDB_API_KEY"}
"""The variables that have a secret as their source, by the field that names the secret."""


MAX_PROCESSES = 4096
"""Processes of one node; a larger number is a mistake."""


def _check_processes(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_PROCESSES
    if value is None or value in ("auto", "gpu", "cpu") or is_number:
        return value
    number = suggest_number(value, whole=True)
    is_possible = number is not None and 1 <= int(number) <= MAX_PROCESSES
    suggestion = number if is_possible else suggest_choice(value, ("auto", "gpu", "cpu"))
    shown = str(value).lower() if isinstance(value, bool) else value
    title = f"`processes_per_node` must be a number from 1 to {MAX_PROCESSES}, `auto`, `gpu` or `cpu`, not `{shown}`"
    raise field_error("processes_per_node", title, **({"hint": f"write `{suggestion}`"} if suggestion else {}))


class LintOptions(SpecModel):
    """Options of the lint rules."""

    ignore: tuple[str, ...] = Field(default=(), description="Ids of the rules to skip")


@root_model
class JobSpec(SpecModel):
    """A training job: a PyTorchJob on a cluster, or processes on this machine."""

    version: Literal[1] = Field(default=1, description="Version of the spec's schema")
    name: str = Field(description="Name of the job, a DNS-1035 label; its pods are `<name>-worker-<i>`")
    project: LabelValue | None = Field(default=None, description="Project of the job; a label of the job and its pods")
    experiment: LabelValue | None = Field(
        default=None, description="Experiment, a group of jobs to compare; a label of the job and its pods"
    )
    namespace: DnsLabel | None = Field(default=None, description="Namespace; default: the one of the kubeconfig's context")
    image: str | None = Field(default=None, description="Container image; ignored by the local backend")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="Image pull policy; default: Kubernetes' own"
    )
    image_pull_secrets: tuple[ObjectName, ...] = Field(default=(), description="Secrets with the logins of image registries")
    make_pull_secret: bool = Field(
        default=False,
        description="Keep a pull secret for the image's registry in the namespace, with your own login; every submit and "
        "relaunch renews it",
    )
    nodes: int = Field(
        default=1, ge=1, le=4096, description="Number of pods, each with one agent; the initial number for an elastic job"
    )
    processes_per_node: Annotated[int | str | None, BeforeValidator(_check_processes)] = Field(
        default=None,
        description="Training processes that each agent starts: a number, `auto`, `gpu` or `cpu`; default: one per GPU, else "
        "one",
    )
    instance: str | None = Field(
        default=None,
        description="Instance type of the nodes; sets GPUs, EFA, network variables, node selector and tolerations",
    )
    network_profile: instances.Profile = Field(
        default="auto",
        description="Network variables (FI_*, NCCL) for the image's libfabric: `older` for versions before 1.18, `current` "
        "for others, `none` for no variables",
    )
    resources: Resources = Field(default=Resources(), validate_default=True)
    launcher: Launcher | None = Field(
        default=None,
        description="Program that starts the processes on each node; `command` is then only the program and its arguments. "
        "Default: `command` runs as it is, and `train` runs with torchrun",
    )
    torchrun: TorchrunOptions = TorchrunOptions()
    elastic: Elastic | None = None
    rendezvous: RendezvousField = Rendezvous()
    env: dict[str, EnvEntry] = Field(
        default_factory=dict,
        description="Environment variables of the training container: texts, or sources such as `{secret: NAME, key: KEY}`",
    )
    env_from: tuple[EnvFromSource, ...] = Field(
        default=(), description="Secrets and ConfigMaps whose keys become variables; `env` overrides them"
    )
    hub_token: SecretRef | None = Field(default=None, description="Secret for HF_TOKEN: `SECRET/KEY`")
    wandb_key: SecretRef | None = Field(default=None, description="Secret for WANDB_API_KEY: `SECRET/KEY`")
    volumes: tuple[Volume, ...] = Field(default=(), description="Storage that every pod mounts")
    shared_memory: SharedMemory | None = Field(
        default=None,
        description="Size of /dev/shm, or `unlimited`; default: half of the pod's memory; 0: the size that the container "
        "runtime chooses",
    )
    restarts: RestartsField = Restarts()
    run: RunPolicy = RunPolicy()
    watchdog: Watchdog = Watchdog()
    scheduling: Scheduling = Scheduling()
    service_account: ObjectName | None = Field(default=None, description="Service account of the pods")
    pod: Pod = Pod()
    master: MasterField | None = Field(
        default=None,
        description="Create a Master and Workers instead of Workers only, or what the Master has instead of the Workers; "
        "default: if the launcher needs a Master",
    )
    labels: dict[MetadataKey, LabelValue] = Field(default_factory=dict, description="Labels of the job and its pods")
    annotations: dict[MetadataKey, EnvValue] = Field(default_factory=dict, description="Annotations of the job and its pods")
    job_labels: dict[MetadataKey, LabelValue] = Field(default_factory=dict, description="Labels of the job, not of its pods")
    job_annotations: dict[MetadataKey, EnvValue] = Field(
        default_factory=dict, description="Annotations of the job, not of its pods"
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Parts of a PyTorchJob that are merged into it last; mappings merge deeply, lists of mappings with a "
        "`name` merge by that name (in their order, if they name every item), and other lists are replaced",
    )
    lint: LintOptions = LintOptions()
    command: Command | None = Field(
        default=None,
        description="Command of the container, as a list of words or one line, for example `torchrun train.py`; default: the "
        "image's own entry point",
    )
    args: Arguments | None = Field(
        default=None, description="Arguments after `command`, or those of the image's own entry point"
    )
    train: TrainSpec | None = Field(default=None, description="Arguments of kfjob's own trainer, instead of `command`")
    progress: str | None = Field(
        default=None,
        description="Regular expression for the progress lines of `command`, if it is not a known trainer; it has a named "
        f"group `step` or `loss`, and may have others of {', '.join(PROGRESS_GROUPS)} (docs/reference/progress.md)",
    )

    @property
    def is_dynamic(self) -> bool:
        """Whether agents join through torch's elastic rendezvous; if not, all agents get the address of a master."""
        return self.launcher in (None, "torchrun") and self.rendezvous.backend != "static"

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `command` and `args`; without `command` they follow the image's own entry point."""
        return (*(self.command or ()), *(self.args or ()))

    @property
    def has_master(self) -> bool:
        """Whether the first pod is a Master."""
        return not self.is_dynamic if self.master is None else self.master is not False

    @classmethod
    def _list_problems(cls, error: ValidationError, fields: object = None) -> list[Problem]:
        """Return all problems of the fields, as for a file: pydantic does not check rules across fields after an error."""
        if isinstance(fields, Mapping) and (problems := check_fields(cls, fields, Positions()).problems):
            return problems
        return super()._list_problems(error, fields)

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if reason := names.find_dns_1035_problem(value):
            raise field_error(
                "job_name", f"job name `{value}` is not a DNS-1035 label: {reason}", hint="for example `llama3-8b`"
            )
        return value

    @field_validator("resources")
    @classmethod
    def _check_instance(cls, value: Resources, info: ValidationInfo) -> Resources:
        """Check that an instance type is known, or that `resources` has its numbers; the lint rule `unknown-instance` warns."""
        instance = info.data.get("instance")
        given = {"cpu", "memory", "gpus", "neuron", "requests", "limits"} & value.model_fields_set
        if instance is None or given or instances.find_instance(instance):
            return value
        similar = instances.suggest_instance(instance)
        hint = f"did you mean `{similar}`? " if similar else "`kfjob instances` lists the catalogue; "
        hint += "for another type, set `resources` (`gpus`, `efa`, `memory` …)"
        raise field_error("instance", f"instance type `{instance}` is not in the catalogue", path="instance", hint=hint)

    @field_validator("elastic")
    @classmethod
    def _check_elastic_launcher(cls, value: Elastic | None, info: ValidationInfo) -> Elastic | None:
        if value and (launcher := info.data.get("launcher")) not in (None, "torchrun"):
            title = f"launcher `{launcher}` cannot run an elastic job"
            raise field_error("elastic_launcher", title, hint="use `launcher: torchrun`")
        return value

    @field_validator("rendezvous")
    @classmethod
    def _check_derived_names(cls, value: Rendezvous, info: ValidationInfo) -> Rendezvous:
        name, nodes = info.data.get("name"), info.data.get("nodes")
        if name is None or nodes is None:
            return value
        max_nodes = max(nodes, elastic.max) if (elastic := info.data.get("elastic")) else nodes
        longest = names.find_longest_name(name, max_nodes, own_etcd=value.has_own_etcd)
        if (excess := len(longest) - names.MAX_LABEL) > 0:
            raise field_error(
                "derived_name",
                "job name is too long for the names that Kubernetes will derive from it",
                path="name",
                detail=f"service `…{longest[len(name) :]}` has {len(longest)} characters, the limit is {names.MAX_LABEL}",
                hint=f"use at most {plural(len(name) - excess, 'character')} for {plural(max_nodes, 'worker')}",
            )
        return value

    @field_validator("rendezvous")
    @classmethod
    def _check_rendezvous_launcher(cls, value: Rendezvous, info: ValidationInfo) -> Rendezvous:
        launcher = info.data.get("launcher")
        if value.is_etcd and launcher not in (None, "torchrun"):
            hint = "remove `rendezvous`, or use `launcher: torchrun`"
            title = f"launcher `{launcher}` cannot use an etcd rendezvous"
            raise field_error("rendezvous_launcher", title, path="rendezvous", hint=hint)
        if value.backend == "static" and info.data.get("elastic"):
            hint = "use `c10d`, `etcd` or `etcd-v2`"
            raise field_error("elastic_static", "an elastic job cannot have a static rendezvous", path="rendezvous", hint=hint)
        return value

    @field_validator("master")
    @classmethod
    def _check_master(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None or "rendezvous" not in info.data or "nodes" not in info.data:
            return value
        is_dynamic = info.data.get("launcher") in (None, "torchrun") and info.data["rendezvous"].backend != "static"
        if not value and not is_dynamic:
            title = "without a Master the operator gives no pod a master address"
            raise field_error("no_master", title, hint="remove `master: false`")
        if value and is_dynamic and info.data["nodes"] == 1:
            title = "the operator requires a Worker beside a Master"
            raise field_error("lone_master", title, hint="remove `master: true`, or use `nodes: 2`")
        if value and (elastic := info.data.get("elastic")) and elastic.metrics:
            title = "an autoscaler counts Workers only, and this job has a Master"
            raise field_error("scaled_master", title, hint="remove `master: true`")
        return value

    @field_validator("train")
    @classmethod
    def _check_spawn(cls, value: TrainSpec | None, info: ValidationInfo) -> TrainSpec | None:
        if value and value.spawn and info.data.get("launcher") != "python":
            hint = "use `launcher: python`, or `processes_per_node` instead of `spawn`"
            title = "`spawn` conflicts with the launcher, which starts the ranks itself"
            raise field_error("spawn", title, path="train.spawn", hint=hint)
        return value

    @field_validator("env")
    @classmethod
    def _check_env_names(cls, value: dict[str, str | EnvVarSource]) -> dict[str, str | EnvVarSource]:
        for name in value:
            if not ENV_NAME_PATTERN.fullmatch(name):
                raise field_error("env_name", f"`{name}` is not a valid name of an environment variable", path=f"env.{name}")
        return value

    @field_validator("image_pull_secrets")
    @classmethod
    def _check_pull_secrets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if (index := find_duplicate(value)) is not None:
            raise field_error("secret_twice", f"duplicate secret `{value[index]}`", path=f"image_pull_secrets.{index}")
        return value

    @field_validator("hub_token", "wandb_key")
    @classmethod
    def _check_secret_variables(cls, value: Any, info: ValidationInfo) -> Any:
        variable = SECRET_VARIABLES[str(info.field_name)]
        if value is not None and variable in info.data.get("env", {}):
            raise field_error(
                "token_twice", f"`{info.field_name}` sets `{variable}`, and so does `env`", hint="remove one of them"
            )
        return value

    @field_validator("volumes")
    @classmethod
    def _check_volumes(cls, value: tuple[Volume, ...], info: ValidationInfo) -> tuple[Volume, ...]:
        rendezvous = info.data.get("rendezvous")
        reserved = (names.SHARED_MEMORY_VOLUME, *([names.TLS_VOLUME] if rendezvous and rendezvous.tls else []))
        for index, volume in enumerate(value):
            path = f"volumes.{index}"
            if volume.name in reserved:
                raise field_error("volume_ours", f"kfjob itself adds a volume `{volume.name}`", path=f"{path}.name")
            for other in value[:index]:
                if volume.name == other.name and volume.source != other.source:
                    title = f"two volumes have the name `{volume.name}`, and different sources"
                    raise field_error("volume_twice", title, path=f"{path}.name")
                if volume.mount_path == other.mount_path:
                    title = f"two volumes have the mount path `{volume.mount_path}`"
                    raise field_error("mount_twice", title, path=f"{path}.mount_path")
        return value

    @field_validator("args")
    @classmethod
    def _check_args(cls, value: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        if value and (launcher := info.data.get("launcher")):
            hint = "write the words at the end of `command`"
            raise field_error("launcher_args", f"launcher `{launcher}` starts `command`, and `args` has no effect", hint=hint)
        return value

    @field_validator("train")
    @classmethod
    def _check_command_or_train(cls, value: TrainSpec | None, info: ValidationInfo) -> TrainSpec | None:
        if "command" not in info.data:
            return value
        command = info.data["command"]
        if command and value is not None:
            raise two_programs_error()
        if value is not None and info.data.get("args"):
            title = "`train` writes the arguments of kfjob's trainer itself, and `args` has no effect"
            raise field_error("train_and_args", title, path="args", hint="remove `args`")
        if not command and value is None:
            if info.data.get("launcher"):
                hint = "add `command: train.py` or `train:`"
                raise field_error("nothing_to_launch", "`launcher` needs `command` or `train`", path="launcher", hint=hint)
            if not info.data.get("image"):
                hint = "add `train:` for kfjob's trainer, or `command:`"
                raise field_error("nothing_to_run", "the job has neither `command` nor `train`", path="", hint=hint)
        folder = value.checkpoint_dir if value else None
        if folder and (reason := names.find_path_problem(folder)):
            raise field_error("checkpoint_folder", f"cannot create this folder: {reason}", path="train.checkpoint_dir")
        return value

    @field_validator("progress")
    @classmethod
    def _check_progress(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if info.data.get("train") is not None:
            title = "`progress` is for `command`: kfjob knows the progress lines of its own trainer"
            raise field_error("progress_and_train", title, hint="remove `progress`")
        if problems := [FieldProblem(field="", title=p.title, detail=p.detail, hint=p.hint) for p in check_pattern(value)]:
            raise field_errors(problems)
        return value

    @model_validator(mode="after")
    def _check_master_pod(self) -> Self:
        if problems := find_master_problems(self):
            raise field_errors(problems)
        return self
