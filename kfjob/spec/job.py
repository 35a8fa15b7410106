"""JobSpec: what a user writes, checked field by field. Pure: nothing here knows a cluster, a clock or a file.

A field that is left out is None or empty here and is decided in `kfjob.plan`, where every decision says where it came from.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from kfjob.common_types import Notify, ignore_notice
from kfjob.spec import instances, names, pytorchjob_schema
from kfjob.spec.base import SpecModel
from kfjob.spec.fields import (
    ENV_NAME_PATTERN,
    Command,
    DnsLabel,
    EnvValue,
    LabelValue,
    MetadataKey,
    ObjectName,
    Quantity,
    SecretRef,
    field_error,
    find_duplicate,
)
from kfjob.spec.pod import EnvEntry, EnvFrom, Pod, Resources
from kfjob.spec.progress import PROGRESS_GROUPS, check_pattern
from kfjob.spec.rendezvous import Elastic, Launcher, Rendezvous, RendezvousField, TorchrunOptions
from kfjob.spec.scheduling import Restarts, RunPolicy, Scheduling
from kfjob.spec.train import TrainSpec
from kfjob.spec.volumes import Volume
from kfjob.spec.watchdog import Watchdog

__all__ = ["SPEC_VERSION", "JobSpec", "Rendezvous", "Resources", "Restarts", "Volume"]

SPEC_VERSION = 1


def _processes(value: object) -> object:
    if (
        value is None
        or value in ("auto", "gpu", "cpu")
        or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)
    ):
        return value
    raise field_error(
        "processes_per_node", f"`processes_per_node` is a number from 1 up, `auto`, `gpu` or `cpu`, not `{value}`"
    )


class LintOptions(SpecModel):
    """What the lint rules are told."""

    ignore: tuple[str, ...] = Field(default=(), description="ids of rules that are not to be reported")


class JobSpec(SpecModel):
    """One training job. Compiles to a PyTorchJob, or runs on this machine."""

    version: Literal[1] = Field(default=1, description="of this schema")
    name: str = Field(description="of the job, a DNS-1035 label; pods are named `<name>-worker-<i>`")
    project: LabelValue | None = Field(default=None, description="what the job belongs to; a label of it and its pods")
    experiment: LabelValue | None = Field(default=None, description="what the job is compared with; a label of it and its pods")
    namespace: DnsLabel | None = Field(default=None, description="left out: the one of the kubeconfig's context")
    image: str | None = Field(default=None, description="of the pods; not used on this machine")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: tuple[ObjectName, ...] = ()
    make_pull_secret: bool = Field(
        default=False,
        description="keep a pull secret for the image's registry in the namespace, with the login of whoever submits, renewed "
        "at every submit and relaunch",
    )
    nodes: int = Field(default=1, ge=1, le=4096, description="pods, each with one agent; of an elastic job, at the start")
    processes_per_node: Annotated[int | str | None, BeforeValidator(_processes)] = Field(
        default=None,
        description="training processes that each agent starts: a number, `auto`, `gpu` or `cpu`; unset: one a GPU, or one",
    )
    instance: str | None = Field(
        default=None, description="instance type of the nodes: gives GPUs, EFA, network variables, node selector, tolerations"
    )
    network_profile: instances.Profile = Field(
        default="auto", description="FI_* and NCCL variables for the image's libfabric: `older` is before 1.18, `current` after"
    )
    resources: Resources = Resources()
    launcher: Launcher | None = Field(
        default=None,
        description="what starts the processes on each node; `command` is then the program and its arguments alone. "
        "Left out: `command` is run as it is, and `train` with torchrun",
    )
    torchrun: TorchrunOptions = TorchrunOptions()
    elastic: Elastic | None = None
    rendezvous: RendezvousField = Rendezvous()
    master: bool | None = Field(
        default=None, description="a Master and Workers instead of Workers only; left out: where the launcher needs one"
    )
    env: dict[str, EnvEntry] = Field(
        default_factory=dict,
        description="environment of the training container: texts, or `{secret: NAME, key: KEY}` and the like",
    )
    hub_token: SecretRef | None = Field(default=None, description="HF_TOKEN, from a secret: `SECRET/KEY`")
    wandb_key: SecretRef | None = Field(default=None, description="WANDB_API_KEY, from a secret: `SECRET/KEY`")
    volumes: tuple[Volume, ...] = ()
    shared_memory: Quantity | None = Field(
        default=None,
        description="size of /dev/shm; left out, half of the pod's memory; 0: what the container runtime gives",
    )
    restarts: Restarts = Restarts()
    run: RunPolicy = RunPolicy()
    watchdog: Watchdog = Watchdog()
    scheduling: Scheduling = Scheduling()
    service_account: ObjectName | None = None
    pod: Pod = Pod()
    labels: dict[MetadataKey, LabelValue] = Field(default_factory=dict, description="put on the job and its pods")
    annotations: dict[MetadataKey, EnvValue] = Field(default_factory=dict, description="put on the job and its pods")
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="merged into the PyTorchJob last: mappings deep, lists of mappings with a `name` by it, other lists whole",
    )
    lint: LintOptions = LintOptions()
    command: Command | None = Field(
        default=None, description="what the container runs, words or one line, for example `torchrun train.py`"
    )
    train: TrainSpec | None = Field(default=None, description="arguments of kfjob's own trainer, instead of `command`")
    progress: str | None = Field(
        default=None,
        description="how `command` prints progress, if no known trainer prints so: a regular expression with named groups, "
        f"among them `step` or `loss`, out of {', '.join(PROGRESS_GROUPS)}",
    )

    @property
    def is_dynamic(self) -> bool:
        """Whether agents come and go through torch's elastic rendezvous; else a master's address is given to all."""
        return self.launcher in (None, "torchrun") and self.rendezvous.backend != "static"

    @property
    def has_master(self) -> bool:
        """Whether the first pod is a Master."""
        return not self.is_dynamic if self.master is None else self.master

    @classmethod
    def from_pytorchjob(cls, job: Any, *, notify: Notify = ignore_notice) -> JobSpec:
        """Return the spec of a PyTorchJob; `kfjob.from_pytorchjob` is the same function and describes it."""
        from kfjob.api.specs.sdk import from_pytorchjob

        return from_pytorchjob(job, notify=notify)

    @field_validator("name")
    @classmethod
    def _dns_1035(cls, value: str) -> str:
        if why := names.find_dns_1035_problem(value):
            raise field_error("job_name", f"job name `{value}` is not a DNS-1035 label: {why}", hint="for example `llama3-8b`")
        return value

    @field_validator("instance")
    @classmethod
    def _known_instance(cls, value: str | None) -> str | None:
        if value is None or instances.find_instance(value):
            return value
        close = instances.suggest_instance(value)
        hint = f"did you mean `{close}`?" if close else "`kfjob instances` lists them; say what it has with `resources`"
        raise field_error("instance", f"instance type `{value}` is not in the catalogue", hint=hint)

    @field_validator("elastic")
    @classmethod
    def _elastic_with_torchrun(cls, value: Elastic | None, info: ValidationInfo) -> Elastic | None:
        if value and (launcher := info.data.get("launcher")) not in (None, "torchrun"):
            raise field_error(
                "elastic_launcher", f"launcher `{launcher}` cannot run an elastic job", hint="use `launcher: torchrun`"
            )
        return value

    @field_validator("rendezvous")
    @classmethod
    def _derived_names_fit(cls, value: Rendezvous, info: ValidationInfo) -> Rendezvous:
        name, nodes = info.data.get("name"), info.data.get("nodes")
        if name is None or nodes is None:
            return value
        most = max(nodes, elastic.max) if (elastic := info.data.get("elastic")) else nodes
        longest = names.find_longest_name(name, most, own_etcd=value.has_own_etcd)
        if (over := len(longest) - names.MAX_LABEL) > 0:
            raise field_error(
                "derived_name",
                "job name is too long for the names that Kubernetes will derive from it",
                path="name",
                detail=f"service `…{longest[len(name) :]}` would have {names.MAX_LABEL + over} characters, "
                f"the limit is {names.MAX_LABEL}",
                hint=f"use at most {len(name) - over} characters for {most} workers",
            )
        return value

    @field_validator("rendezvous")
    @classmethod
    def _for_the_launcher(cls, value: Rendezvous, info: ValidationInfo) -> Rendezvous:
        launcher = info.data.get("launcher")
        if value.is_etcd and launcher not in (None, "torchrun"):
            hint = "remove `rendezvous`, or use `launcher: torchrun`"
            raise field_error(
                "rendezvous_launcher", f"launcher `{launcher}` cannot meet in an etcd", path="rendezvous", hint=hint
            )
        if value.backend == "static" and info.data.get("elastic"):
            hint = "use `c10d`, `etcd` or `etcd-v2`"
            raise field_error("elastic_static", "an elastic job cannot have a static rendezvous", path="rendezvous", hint=hint)
        return value

    @field_validator("master")
    @classmethod
    def _master_where_it_must_be(cls, value: bool | None, info: ValidationInfo) -> bool | None:  # noqa: FBT001 - a validator's form
        if value is None or "rendezvous" not in info.data or "nodes" not in info.data:
            return value
        dynamic = info.data.get("launcher") in (None, "torchrun") and info.data["rendezvous"].backend != "static"
        if not value and not dynamic:
            raise field_error(
                "no_master", "without a Master the operator tells nobody its address", hint="remove `master: false`"
            )
        if value and dynamic and info.data["nodes"] == 1:
            raise field_error(
                "lone_master", "the operator wants a Worker beside a Master", hint="remove `master: true`, or use `nodes: 2`"
            )
        if value and (elastic := info.data.get("elastic")) and elastic.metrics:
            raise field_error(
                "scaled_master", "an autoscaler counts Workers only, and this job has a Master", hint="remove `master: true`"
            )
        return value

    @field_validator("train")
    @classmethod
    def _spawn_without_launcher(cls, value: TrainSpec | None, info: ValidationInfo) -> TrainSpec | None:
        if value and value.spawn and info.data.get("launcher") != "python":
            hint = "use `launcher: python`, or `processes_per_node` instead of `spawn`"
            raise field_error(
                "spawn", "this job's launcher starts its ranks: none is to spawn others", path="train.spawn", hint=hint
            )
        return value

    @field_validator("env")
    @classmethod
    def _env_names(cls, value: dict[str, str | EnvFrom]) -> dict[str, str | EnvFrom]:
        for name in value:
            if not ENV_NAME_PATTERN.fullmatch(name):
                raise field_error("env_name", f"`{name}` is not the name of an environment variable", path=f"env.{name}")
        return value

    @field_validator("image_pull_secrets")
    @classmethod
    def _no_secret_twice(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if (index := find_duplicate(value)) is not None:
            raise field_error("secret_twice", f"`{value[index]}` stands twice", path=f"image_pull_secrets.{index}")
        return value

    @field_validator("hub_token", "wandb_key")
    @classmethod
    def _said_once(cls, value: Any, info: ValidationInfo) -> Any:
        name = SECRET_VARIABLES[str(info.field_name)]
        if value is not None and name in info.data.get("env", {}):
            raise field_error("token_twice", f"`{info.field_name}` is `{name}`, and `env` has it too")
        return value

    @field_validator("volumes")
    @classmethod
    def _distinct(cls, value: tuple[Volume, ...], info: ValidationInfo) -> tuple[Volume, ...]:
        rendezvous = info.data.get("rendezvous")
        ours = (names.SHARED_MEMORY_VOLUME, *([names.TLS_VOLUME] if rendezvous and rendezvous.tls else []))
        for index, volume in enumerate(value):
            if volume.name in ours:
                raise field_error("volume_ours", f"kfjob itself adds a volume `{volume.name}`", path=f"volumes.{index}.name")
            for other in value[:index]:
                if volume.name == other.name:
                    raise field_error("volume_twice", f"two volumes are named `{volume.name}`", path=f"volumes.{index}.name")
                if volume.mount_path == other.mount_path:
                    raise field_error(
                        "mount_twice", f"two volumes are mounted at `{volume.mount_path}`", path=f"volumes.{index}.mount_path"
                    )
        return value

    @field_validator("overrides")
    @classmethod
    def _parts_of_a_job(cls, value: dict[str, Any]) -> dict[str, Any]:
        for path, message in pytorchjob_schema.find_override_problems(value):
            where = ".".join(["overrides", *map(str, path)])
            raise field_error("overrides", f"`{where}` {message}", path=where)
        return value

    @field_validator("train")
    @classmethod
    def _command_or_train(cls, value: TrainSpec | None, info: ValidationInfo) -> TrainSpec | None:
        if "command" not in info.data:
            return value
        command = info.data["command"]
        if command and value is not None:
            raise field_error("command_and_train", "a job has either `command` or `train`, not both", path="train")
        if not command and value is None:
            raise field_error(
                "nothing_to_run", "the job has nothing to run", path="", hint="add `train:` for kfjob's trainer, or `command:`"
            )
        folder = value.checkpoint_dir if value else None
        if folder and (why := names.find_path_problem(folder)):
            raise field_error("checkpoint_folder", f"this folder cannot be made: {why}", path="train.checkpoint_dir")
        return value

    @field_validator("progress")
    @classmethod
    def _reads_progress(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if info.data.get("train") is not None:
            raise field_error("progress_and_train", "kfjob's own trainer prints lines that are known", hint="remove `progress`")
        if wrong := check_pattern(value):
            context = {key: text for key, text in (("detail", wrong.detail), ("hint", wrong.hint)) if text}
            raise field_error("progress", wrong.title, **context)
        return value


SECRET_VARIABLES = {"hub_token": "HF_TOKEN", "wandb_key": "WANDB_API_KEY"}
"""The variables that are taken from a secret, by the field that names it."""
