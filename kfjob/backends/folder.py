"""The folder of one launch of one job: what the local backend writes as a job runs, and what an archive of any backend holds.

    <root>/<namespace>/<job>/<launch>/
        spec.json                       the submitted spec, if kfjob submitted one
        manifest.json                   the submitted objects, if it was a template
        status.json                     the JobSnapshot, replaced as a whole by rename
        events.json                     what the cluster's controllers wrote down of it, oldest first
        <pod>/<container>.log           lines as `kubectl logs --timestamps` prints them
        <pod>/<container>.previous.log  of the container before the last restart
        .run/                           what only a job that runs on this machine needs

The folders hold what a job printed and was told, so they are the owner's alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import MsgspecError, json
from msgspec.structs import replace

from kfjob.errors import BackendError, NotFound
from kfjob.events import TRAINING_CONTAINER, JobSnapshot, KubernetesEvent, WorkloadStatus

RUN = ".run"
SPEC = "spec.json"
MANIFEST = "manifest.json"
STATUS = "status.json"
EVENTS = "events.json"


def launch_folder(root: Path, namespace: str, job: str, launch: str) -> Path:
    """Where this launch of this job is kept."""
    return root / namespace / job / launch


def launches(root: Path, namespace: str, job: str) -> list[Path]:
    """The folders of every launch of a job that is kept under `root`, oldest first."""
    return sorted(entries(root / namespace / job), key=lambda folder: (_created(folder), folder.name))


def entries(folder: Path) -> list[Path]:
    """The visible folders in `folder`, by name; none if it is not there."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".") and entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def make_private(folder: Path) -> Path:
    """Make `folder` and what is missing above it, for the owner alone."""
    missing = [folder, *folder.parents]
    for path in reversed([path for path in missing if not path.exists()]):
        path.mkdir(mode=0o700, exist_ok=True)
    return folder


def write_snapshot(folder: Path, snapshot: JobSnapshot) -> None:
    """Replace what the folder says of the job; a reader sees the old or the new."""
    for file, said in ((folder / SPEC, snapshot.spec), (folder / MANIFEST, snapshot.manifest)):
        if said is not None and not file.exists():
            replace_file(file, said)
    replace_file(folder / STATUS, _json(replace(snapshot, spec=None, manifest=None)))


def read_snapshot(folder: Path) -> JobSnapshot:
    """What the folder says of the job. Fields of a newer kfjob are left out.

    Raises:
        NotFound: the folder says nothing.
        BackendError: what it says cannot be understood.
    """
    try:
        snapshot = json.decode((folder / STATUS).read_bytes(), type=JobSnapshot)
        return replace(snapshot, spec=_text(folder / SPEC), manifest=_text(folder / MANIFEST))
    except (FileNotFoundError, NotADirectoryError) as err:
        raise NotFound(f"`{folder}` holds no {STATUS}") from err
    except (OSError, ValueError, MsgspecError) as err:
        raise BackendError(f"`{folder / STATUS}` cannot be read", cause=f"{type(err).__name__}: {err}") from err


def write_events(folder: Path, events: Sequence[KubernetesEvent | WorkloadStatus]) -> None:
    """Replace what the folder has of the cluster's events."""
    replace_file(folder / EVENTS, _json(events))


def read_events(folder: Path) -> list[KubernetesEvent | WorkloadStatus]:
    """The cluster's events, none if none were kept.

    Raises:
        BackendError: what the folder says cannot be understood.
    """
    try:
        return json.decode(_text(folder / EVENTS) or "[]", type=list[KubernetesEvent | WorkloadStatus])
    except (OSError, ValueError, MsgspecError) as err:
        raise BackendError(f"`{folder / EVENTS}` cannot be read", cause=f"{type(err).__name__}: {err}") from err


def log_path(folder: Path, pod: str, container: str = TRAINING_CONTAINER, *, previous: bool = False) -> Path:
    """The log of a pod's container."""
    return folder / pod / f"{container}{'.previous' if previous else ''}.log"


def saved_logs(folder: Path) -> dict[str, Path]:
    """The logs of a folder by pod: `<pod>/<container>.log`, or `<pod>.log` as a loop over `kubectl logs` leaves them.

    Of a log that is there only as `.previous.log` it is the path that the present one would have. Of several containers it is
    the one that trains.
    """
    logs = _logs(folder)
    for pod in entries(folder):
        known = _logs(pod)
        if log := known.get(TRAINING_CONTAINER) or (next(iter(known.values())) if len(known) == 1 else None):
            logs[pod.name] = log
    return logs


def _logs(folder: Path) -> dict[str, Path]:
    names = {file.name.removesuffix(".log").removesuffix(".previous") for file in folder.glob("*.log") if file.is_file()}
    return {name: folder / f"{name}.log" for name in sorted(names)}


def previous_log(log: Path) -> Path:
    """Where the log of the container before lies, beside the present one's."""
    return log.with_name(f"{log.name.removesuffix('.log')}.previous.log")


def _json(value: object) -> str:
    return json.format(json.encode(value), indent=1).decode()


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def replace_file(file: Path, text: str) -> None:
    """Write a file anew; a reader sees the old or the new."""
    staged = file.with_name(f".{file.name}.{os.getpid()}")
    staged.write_text(text, encoding="utf-8")
    staged.replace(file)


def _created(folder: Path) -> int:
    try:
        return read_snapshot(folder).job.created or 0
    except (NotFound, BackendError):
        return 0
