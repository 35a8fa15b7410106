"""The fields of a job spec, each with its type, default and description; the rules across them are in `job`. Pure."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from kfjob.base.capabilities import AUTO_TARGET, TargetName
from kfjob.joblog.progress.pattern import PROGRESS_GROUPS
from kfjob.shell.commands import Launcher
from kfjob.spec import instances
from kfjob.spec.fields import (
    Arguments,
    Command,
    DnsLabel,
    EnvValue,
    LabelValue,
    MetadataKey,
    ObjectName,
    RuntimeName,
    SecretRef,
    SharedMemory,
)
from kfjob.spec.master import MasterField
from kfjob.spec.pod import EnvEntry, EnvFromSource, Pod, Resources
from kfjob.spec.rendezvous import Elastic, Rendezvous, RendezvousField, TorchrunOptions
from kfjob.spec.scheduling import Restarts, RestartsField, RunPolicy, Scheduling
from kfjob.spec.volumes import Volume
from kfjob.spec.watchdog import Recovery, Watchdog
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.validation.spec_model import SpecModel, field_error

MAX_PROCESSES = 4096
"""Processes of one node; a larger number is a mistake."""


def _check_processes(value: object) -> object:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)  # as pydantic reads the other numbers: a substituted `${NAME}` is a text
    is_number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_PROCESSES
    if value is None or value in ("auto", "gpu", "cpu") or is_number:
        return value
    shown = str(value).lower() if isinstance(value, bool) else value
    title = f"`processes_per_node` must be a number from 1 to {MAX_PROCESSES}, `auto`, `gpu` or `cpu`, not `{shown}`"
    raise field_error("processes_per_node", title)


class LintOptions(SpecModel):
    """Options of the lint rules."""

    ignore: tuple[str, ...] = Field(default=(), description="Ids of the rules to skip")


class JobFields(SpecModel, defer_build=True):
    """The fields of a `JobSpec`, without the rules across them; programs make a `JobSpec` only."""

    version: Literal[1] = Field(default=1, description="Version of the spec's schema")
    name: str = Field(description="Name of the job, a DNS-1035 label; its pods are `<name>-worker-<i>`")
    project: LabelValue | None = Field(default=None, description="Project of the job; a label of the job and its pods")
    experiment: LabelValue | None = Field(
        default=None, description="Experiment, a group of jobs to compare; a label of the job and its pods"
    )
    namespace: DnsLabel | None = Field(default=None, description="Namespace; default: the one of the kubeconfig's context")
    target: TargetName | None = Field(
        default=None,
        description="Kind of the job on a cluster: `pytorchjob` of the training operator, `trainjob` of Kubeflow Trainer v2, "
        "or `auto`, what the cluster offers; default: `pytorchjob`, and `trainjob` on a cluster without the training operator",
    )
    runtime: RuntimeName | None = Field(
        default=None,
        description="Existing runtime of Kubeflow Trainer, for a TrainJob: name of a ClusterTrainingRuntime with the policy "
        "`torch`, or `trainingruntime/NAME`; default: kfjob makes a runtime for the job",
    )
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
    # Defaults are constructed without validation, which would build a validator of each model. A test validates them.
    resources: Resources = Field(default=Resources.model_construct(), validate_default=True)
    launcher: Launcher | None = Field(
        default=None,
        description="Program that starts the processes on each node; `command` is then only the program and its arguments. "
        "Default: `command` runs as it is, and `train` runs with torchrun",
    )
    torchrun: TorchrunOptions = TorchrunOptions.model_construct()
    elastic: Elastic | None = None
    rendezvous: RendezvousField = Rendezvous.model_construct()
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
    restarts: RestartsField = Restarts.model_construct()
    run: RunPolicy = RunPolicy.model_construct()
    watchdog: Watchdog = Watchdog.model_construct()
    recovery: Recovery | None = Field(
        default=None,
        description="Let the guard relaunch the job after a failure; `recovery: {}` has the defaults",
    )
    scheduling: Scheduling = Scheduling.model_construct()
    service_account: ObjectName | None = Field(default=None, description="Service account of the pods")
    pod: Pod = Pod.model_construct()
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
    lint: LintOptions = LintOptions.model_construct()
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
    def wanted_target(self) -> TargetName | None:
        """The kind of job that the spec asks for; only a TrainJob has a `runtime`."""
        return "trainjob" if self.runtime and self.target in {None, AUTO_TARGET} else self.target

    @property
    def is_dynamic(self) -> bool:
        """Whether agents join through torch's elastic rendezvous; if not, all agents get the address of a master."""
        return self.launcher in (None, "torchrun") and self.rendezvous.backend != "static"

    @property
    def min_nodes(self) -> int:
        """The smallest number of nodes with which the job trains."""
        return self.elastic.min if self.elastic else self.nodes

    @property
    def max_nodes(self) -> int:
        """The largest number of nodes with which the job trains."""
        return self.elastic.max if self.elastic else self.nodes

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `command` and `args`; without `command` they follow the image's own entry point."""
        return (*(self.command or ()), *(self.args or ()))

    @property
    def has_master(self) -> bool:
        """Whether the first pod is a Master."""
        return not self.is_dynamic if self.master is None else self.master is not False
