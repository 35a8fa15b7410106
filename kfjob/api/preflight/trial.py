"""A short job of the same shape, in the same image, that runs `kfjob/trainer/collectives.py` instead of training.

The file goes along compressed, as a variable of the pods: a submitter needs no right to make config maps for that.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from kfjob.compile.pytorchjob import check_overrides
from kfjob.events import TRAINING_CONTAINER
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec import names
from kfjob.spec.job import JobSpec

SUFFIX = "-preflight"
SCRIPT = "KFJOB_COLLECTIVES"
NODE_NAME = "KFJOB_NODE_NAME"
START = f'import base64,os,zlib;exec(zlib.decompress(base64.b64decode(os.environ["{SCRIPT}"])))'
KEPT_SECONDS = 600
"""After its end the job deletes itself, should nobody be there to do it."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How it is to be run."""

    timeout: float = 600.0  # seconds, from the submit to the result
    sizes: str | None = None  # of the arrays, as `8K,1M`; None: what fits the network
    seconds: float = 0.25  # for one operation at one size


def trial_plan(spec: JobSpec, into: Context, trial: Trial) -> JobPlan:
    """The job that stands in for `spec`: its nodes, image, environment, volumes, resources and way to meet, and our program."""
    plan = resolve(JobSpec.model_validate(_changed(spec, into, trial)), into)
    peers = ",".join(plan.pods) if into.backend == "kubernetes" else ""
    look = ("python3", "-c", START, "node", "--peers", peers, "--patience", f"{trial.timeout * 0.8:g}", "--")
    plan = replace(plan, command=(*look, *plan.command))
    check_overrides(plan)
    return plan


def _changed(spec: JobSpec, into: Context, trial: Trial) -> dict[str, Any]:
    said = spec.model_dump(mode="json", exclude_defaults=True)
    pod = {key: value for key, value in said.get("pod", {}).items() if key not in ("init_containers", "sidecars")}
    rendezvous = {key: value for key, value in said.get("rendezvous", {}).items() if key != "id"}
    env: dict[str, Any] = {**said.get("env", {}), SCRIPT: packed()}
    if into.backend == "kubernetes":
        env[NODE_NAME] = {"field": "spec.nodeName"}
    said = {key: value for key, value in said.items() if key not in ("train", "elastic", "torchrun", "launcher")}
    if not spec.is_dynamic:
        rendezvous = {"backend": "static"} | {key: value for key, value in rendezvous.items() if key == "port"}
    return said | {
        "name": trial_name(spec),
        "command": ["torchrun", "--no-python", "python3", "-c", START, *_arguments(spec, into, trial)],
        "env": env,
        "pod": pod,
        "rendezvous": rendezvous,
        "restarts": {"max": 0, "policy": "Never"},
        "run": {"ttl": KEPT_SECONDS, "deadline": int(trial.timeout) + KEPT_SECONDS},
        "overrides": _without_command(spec.overrides),
    }


def _arguments(spec: JobSpec, into: Context, trial: Trial) -> list[str]:
    meant = resolve(spec, into)
    backend = "nccl" if meant.resources.gpus else "gloo" if meant.processes_per_node.isdecimal() else "auto"
    words = [
        "--output",
        "json",
        "--backend",
        backend,
        "--deadline",
        f"{trial.timeout * 0.8:g}",
        "--seconds",
        f"{trial.seconds:g}",
    ]
    return [*words, "--sizes", trial.sizes] if trial.sizes else words


def trial_name(spec: JobSpec) -> str:
    """`<job>-preflight`, the job's part cut where the names of its pods would be too long."""
    own_etcd = spec.is_dynamic and spec.rendezvous.has_own_etcd
    name = spec.name
    while len(names.find_longest_name(name + SUFFIX, spec.nodes, own_etcd=own_etcd)) > names.MAX_LABEL:
        name = name[:-1].rstrip("-")
    return name + SUFFIX


def packed() -> str:
    """The program as a variable can carry it."""
    text = files("kfjob").joinpath("trainer", "collectives.py").read_bytes()
    return base64.b64encode(zlib.compress(text, 9)).decode()


def _without_command(over: Any) -> Any:
    """`overrides` less what the training container would run, and without a name for the job."""
    if isinstance(over, list):
        return [_without_command(item) for item in over]
    if not isinstance(over, Mapping):
        return over
    gone = {"command", "args"} if over.get("name") == TRAINING_CONTAINER else set()
    kept = {key: _without_command(value) for key, value in over.items() if key not in gone}
    if isinstance(kept.get("metadata"), dict):
        kept["metadata"].pop("name", None)
    return kept
