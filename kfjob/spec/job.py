"""JobSpec: the spec that a user writes, validated field by field. Pure: this module uses no cluster, clock or file.

A field that the user omits is None or empty here. `kfjob.plan` chooses its value, and records the origin of every choice.
"""

from typing import Any, Self

from pydantic import ValidationInfo, field_validator, model_validator

from kfjob.base.errors import SpecError
from kfjob.base.text import plural
from kfjob.joblog.progress.pattern import check_pattern
from kfjob.objects import names
from kfjob.spec import instances
from kfjob.spec.fields import (
    ENV_NAME_PATTERN,
    find_duplicate,
)
from kfjob.spec.job_fields import JobFields
from kfjob.spec.master import MasterPod
from kfjob.spec.pod import EnvVarSource, Resources
from kfjob.spec.rendezvous import Elastic, Rendezvous
from kfjob.spec.scheduling import Placement, Restarts
from kfjob.spec.volumes import Volume
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.validation.spec_model import FieldProblem, field_error, field_errors

__all__ = ["SPEC_VERSION", "JobSpec", "Rendezvous", "Resources", "Restarts", "Volume"]

SPEC_VERSION = 1
SECRET_VARIABLES = {"hub_token": "HF_TOKEN", "wandb_key": "WANDB_API_KEY"}
"""The variables that have a secret as their source, by the field that names the secret."""

_MASTER_PARTS = frozenset({"scheduling", "restart_policy"})
"""Fields of `MasterPod` that replace only a part of the job's field."""


class JobSpec(JobFields):
    """A training job: a PyTorchJob on a cluster, or processes on this machine."""

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
            hint = "remove one of them"
            raise field_error("command_and_train", "a job has either `command` or `train`, not both", path="train", hint=hint)
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


def make_master_spec(spec: JobSpec, **fields: Any) -> JobSpec | None:
    """Return the spec of a job whose pods are all as the Master is, with other `fields`; None if the pods are equal.

    Raises:
        SpecError: the fields of the Master do not fit together, or with the job's.
    """
    if not isinstance(spec.master, MasterPod):
        return None
    sections = {name: getattr(spec.master, name) for name in spec.master.model_fields_set}
    sections = {name: value for name, value in sections.items() if value is not None}
    own = {name: value for name, value in sections.items() if name not in _MASTER_PARTS}
    if (placement := sections.get("scheduling")) is not None:
        of_job = spec.scheduling.model_fields_set - Placement.model_fields.keys()
        job_fields = {name: getattr(spec.scheduling, name) for name in of_job}
        placed = {name: getattr(placement, name) for name in placement.model_fields_set}
        own["scheduling"] = type(spec.scheduling)(**job_fields, **placed)
    if policy := sections.get("restart_policy"):
        own["restarts"] = spec.restarts.model_copy(update={"policy": policy})
    job = {name: getattr(spec, name) for name in spec.model_fields_set}
    return JobSpec.model_validate(job | own | {"master": True} | fields)


def find_master_problems(spec: JobSpec) -> list[FieldProblem]:
    """Return the problems of the Master's fields together with the job's."""
    try:
        make_master_spec(spec)
    except SpecError as err:
        return [FieldProblem(field=get_master_path(p.path), title=p.title, detail=p.detail, hint=p.hint) for p in err.problems]
    return []


def get_master_path(path: str) -> str:
    """Return where the spec has a field of the Master's own spec."""
    if path == "restarts.policy":
        return "master.restart_policy"
    return f"master.{path}" if path.partition(".")[0] in MasterPod.model_fields else "master"
