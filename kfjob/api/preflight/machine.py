"""What a job needs of this machine."""

from __future__ import annotations

from pathlib import Path

from kfjob.api.preflight.result import Checked
from kfjob.api.target import Target
from kfjob.errors import NotFound, Refused
from kfjob.plan import JobPlan


def check(plan: JobPlan, target: Target, found: Checked) -> None:
    """Its name, cores and GPUs, its program and the folders that it mounts."""
    from kfjob.backends.local import etcd, machine

    try:
        target.backend.get(plan.name, namespace=plan.namespace)
    except NotFound:
        found.good.append("names are free")
    else:
        hint = f"`kfjob stop {plan.name}` removes it, `kfjob relaunch {plan.name}` starts it anew"
        found.error(f"there is a job `{plan.name}` on this machine already", "name", hint=hint)
    try:
        machine.check_capacity(plan)
        found.good.append(f"{machine.cores()} cores and {len(machine.gpus())} GPUs are enough")
    except Refused as err:
        found.error(err.title, "resources", detail=err.cause or "", hint=err.hint or "")
    try:
        program = machine.program(plan.command[0], dict(plan.env).get("PATH", ""))
        found.good.append(f"program {program}")
    except Refused as err:
        found.error(err.title, "command", detail=err.cause or "", hint=err.hint or "")
    if plan.own_etcd_image:
        try:
            etcd.etcd_spec(plan, target.settings.state)
            found.good.append("etcd is on PATH")
        except Refused as err:
            found.error(err.title, "rendezvous", detail=err.cause or "", hint=err.hint or "")
    for index, volume in enumerate(plan.volumes):
        if volume.host_path and not Path(volume.host_path).exists():
            found.error(f"volume `{volume.name}`: `{volume.host_path}` is not on this machine", f"volumes.{index}.host_path")
