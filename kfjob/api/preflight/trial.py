"""Plan a trial: a short job of the same shape and image that runs `kfjob/trainer/collectives.py` instead of the training.

The script travels compressed in a variable of the pods, so a trial needs no right to create config maps.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.common_types import JsonObject
from kfjob.joblog.events import TRAINING_CONTAINER
from kfjob.objects import names
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec

SUFFIX = "-preflight"
SCRIPT_VARIABLE = "KFJOB_COLLECTIVES"
NODE_NAME_VARIABLE = "KFJOB_NODE_NAME"
START = f'import base64,os,zlib;exec(zlib.decompress(base64.b64decode(os.environ["{SCRIPT_VARIABLE}"])))'
TTL_SECONDS = 600
"""Lifetime of a trial job, which deletes itself then in case kfjob cannot delete it."""


class Trial(Struct, frozen=True, kw_only=True):
    """Options of a trial."""

    timeout: float = 600.0  # seconds, from submit to result
    sizes: str | None = None  # array sizes as `8K,1M`; None: sizes for the network
    seconds: float = 0.25  # per operation and size


def plan_trial(spec: JobSpec, context: Context, trial: Trial) -> JobPlan:
    """Return the plan of a trial: nodes, image, environment, volumes, resources and rendezvous of the spec, with our script."""
    plan = resolve(JobSpec.model_validate(_trial_spec(spec, context, trial)), context)
    peers = ",".join(plan.pods) if context.capabilities.has_api_server else ""
    patience = f"{_script_deadline(trial):g}"
    node_command = ("python3", "-c", START, "node", "--peers", peers, "--patience", patience, "--")
    master = replace(plan.master, command=(*node_command, *plan.master.command)) if plan.master else None
    return replace(plan, command=(*node_command, *plan.command), master=master)


def _script_deadline(trial: Trial) -> float:
    """Return the deadline inside the pods, in seconds: early enough that kfjob can read the results."""
    return trial.timeout * 0.8


def _trial_spec(spec: JobSpec, context: Context, trial: Trial) -> JsonObject:
    fields = spec.model_dump(mode="json", exclude_defaults=True)
    pod = {key: value for key, value in fields.get("pod", {}).items() if key not in ("init_containers", "sidecars")}
    rendezvous = {key: value for key, value in fields.get("rendezvous", {}).items() if key != "id"}
    env: dict[str, Any] = {**fields.get("env", {}), SCRIPT_VARIABLE: pack_script()}
    if context.capabilities.has_api_server:
        env[NODE_NAME_VARIABLE] = {"field": "spec.nodeName"}
    if isinstance(master := fields.get("master"), dict):
        fields["master"] = _trial_master(master, env)
    fields = {key: value for key, value in fields.items() if key not in ("train", "args", "elastic", "torchrun", "launcher")}
    if not spec.is_dynamic:
        rendezvous = {"backend": "static"} | {key: value for key, value in rendezvous.items() if key == "port"}
    return fields | {
        "name": trial_name(spec),
        "command": ["torchrun", "--no-python", "python3", "-c", START, *_script_arguments(spec, context, trial)],
        "env": env,
        "pod": pod,
        "rendezvous": rendezvous,
        "restarts": {"max": 0, "policy": "Never"},
        "run": {"ttl": TTL_SECONDS, "deadline": int(trial.timeout) + TTL_SECONDS},
        "overrides": _remove_commands(spec.overrides),
    }


def _trial_master(section: JsonObject, env: JsonObject) -> JsonObject:
    """Return what the Master of a trial has instead of the Workers: the Master's own parts, with our script."""
    own = {key: value for key, value in section.items() if key not in ("command", "args", "restart_policy")}
    if "env" in own:
        added = {name: env[name] for name in (SCRIPT_VARIABLE, NODE_NAME_VARIABLE) if name in env}
        own["env"] = own["env"] | added
    if "pod" in own:
        own["pod"] = {key: value for key, value in own["pod"].items() if key not in ("init_containers", "sidecars")}
    return own


def _script_arguments(spec: JobSpec, context: Context, trial: Trial) -> list[str]:
    plan = resolve(spec, context)
    backend = "nccl" if plan.resources.gpus else "gloo" if plan.processes_per_node.isdecimal() else "auto"
    arguments = ["--output", "json", "--backend", backend]
    arguments += ["--deadline", f"{_script_deadline(trial):g}", "--seconds", f"{trial.seconds:g}"]
    return [*arguments, "--sizes", trial.sizes] if trial.sizes else arguments


def trial_name(spec: JobSpec) -> str:
    """Return `<job>-preflight`; the job's part is cut if the names of the pods would be too long."""
    own_etcd = spec.is_dynamic and spec.rendezvous.has_own_etcd
    name = spec.name
    while len(names.find_longest_name(name + SUFFIX, spec.nodes, own_etcd=own_etcd)) > names.MAX_LABEL:
        name = name[:-1].rstrip("-")
    return name + SUFFIX


def pack_script() -> str:
    """Return the script, compressed and in base64, as the value of a variable."""
    script = files("kfjob").joinpath("trainer", "collectives.py").read_bytes()
    return base64.b64encode(zlib.compress(script, 9)).decode()


def _remove_commands(value: Any) -> Any:
    """Return a part of `overrides` without the command of the training container and without the job's name."""
    if isinstance(value, list):
        return [_remove_commands(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    excluded = {"command", "args"} if value.get("name") == TRAINING_CONTAINER else set()
    result = {key: _remove_commands(item) for key, item in value.items() if key not in excluded}
    if isinstance(result.get("metadata"), dict):
        result["metadata"].pop("name", None)
    return result
