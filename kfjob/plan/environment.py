"""The environment of the training container, without the variables that the operator adds."""

from __future__ import annotations

from collections.abc import Mapping

from kfjob.plan.values import Decisions
from kfjob.spec import instances
from kfjob.spec.instances import Instance
from kfjob.spec.job import SECRET_VARIABLES, JobSpec
from kfjob.spec.pod import EnvVarSource, Resources
from kfjob.spec.rendezvous import TorchrunOptions

_DEFAULTS = {"LOGLEVEL": ("INFO", "torch hides the agents' lines without it, and `kfjob master` reads them")}
_DYNAMIC = {
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": (
        "1",
        "with a shared store a job does not survive a change of rank 0 (torch 2.6 and newer)",
    ),
}
_LOCAL_ADDR = {"pod-ip": "status.podIP", "pod-name": "metadata.name"}


def list_variables(
    spec: JobSpec, instance: Instance | None, resources: Resources, decisions: Decisions, *, in_cluster: bool
) -> tuple[tuple[str, str | EnvVarSource], ...]:
    """Return the variables with their values or sources: those that kfjob adds, then the spec's own in their order.

    The kubelet replaces `$(NAME)` by a variable that stands before, so the order has a meaning. Sources that kfjob adds are the
    first, so that every value can name them.
    """
    env: dict[str, str | EnvVarSource] = {}
    for name, (value, reason) in (_DEFAULTS | (_DYNAMIC if spec.is_dynamic else {})).items():
        env[name] = _decide(spec, name, value, reason, decisions)
    if instance:
        efa = resources.efa or (instance.efa if resources.efa_claim else 0)
        network = instances.list_network_variables(instance, efa, spec.network_profile)
        for name, (value, reason) in network.items():
            env[name] = _decide(spec, name, value, f"{instance.name}: {reason}", decisions, from_instance=True)
    if in_cluster:  # on one machine NCCL may need the loopback interface
        nccl = instances.list_nccl_variables(gpus=resources.gpus, nodes=spec.max_nodes, profile=spec.network_profile)
        for name, (value, reason) in nccl.items():
            env[name] = _decide(spec, name, value, reason, decisions)
    env |= _torchrun_variables(spec, decisions)
    sources = _list_own_sources(spec)
    added = {name: value for name, value in env.items() if name not in spec.env and name not in sources}
    own = {name: value for name, value in spec.env.items() if name not in sources}
    return (*sources.items(), *added.items(), *own.items())


def _list_own_sources(spec: JobSpec) -> dict[str, EnvVarSource]:
    """Return the sources of the variables that other fields than `env` set."""
    secrets = {SECRET_VARIABLES[field]: getattr(spec, field) for field in SECRET_VARIABLES}
    secrets |= {"KFJOB_ETCD_USER": spec.rendezvous.user, "KFJOB_ETCD_PASSWORD": spec.rendezvous.password}
    sources = {name: EnvVarSource(secret=key.secret, key=key.key) for name, key in secrets.items() if key is not None}
    if field := _LOCAL_ADDR.get(spec.rendezvous.local_addr or ""):
        sources["PET_LOCAL_ADDR"] = EnvVarSource(field=field)
    return sources


def _decide(spec: JobSpec, name: str, default: str, reason: str, decisions: Decisions, *, from_instance: bool = False) -> str:
    value = spec.env.get(name)
    text = value if value is None or isinstance(value, str) else "from elsewhere"
    return decisions.decide(f"env.{name}", text, default, reason, origin="instance" if from_instance else "default")


def _torchrun_variables(spec: JobSpec, decisions: Decisions) -> Mapping[str, str]:
    """Return torchrun's options as the variables that it reads (torch/distributed/run.py: `PET_` and the option's name)."""
    env = {}
    for name in TorchrunOptions.model_fields:
        if (value := getattr(spec.torchrun, name)) is not None:
            env[f"PET_{name.upper()}"] = f"{value:g}" if isinstance(value, float) else str(value)
    if spec.rendezvous.local_addr and spec.rendezvous.local_addr not in _LOCAL_ADDR:
        env["PET_LOCAL_ADDR"] = spec.rendezvous.local_addr
    if not spec.is_dynamic and spec.launcher in (None, "torchrun", "launch"):
        if spec.restarts.max:  # 0 is torchrun's default; the operator sets the variable only with an elasticPolicy
            env["PET_MAX_RESTARTS"] = str(spec.restarts.max)
        if spec.rendezvous.conf:
            env["PET_RDZV_CONF"] = ",".join(f"{key}={value}" for key, value in sorted(spec.rendezvous.conf.items()))
    for name, value in env.items():
        is_default = name == "PET_MAX_RESTARTS" and "max" not in spec.restarts.model_fields_set
        decisions.decide(f"env.{name}", None if is_default else value, value, "torchrun reads `restarts.max` from it")
    return env
