"""The folder of one launch of a job. The local backend writes it while a job runs; an archive holds one per launch.

    <root>/<namespace>/<job>/<launch>/
        spec.json                       the submitted spec, if kfjob submitted one
        manifest.json                   the submitted objects of a template
        status.json                     the JobSnapshot, replaced as a whole by rename
        events.json                     the cluster's events about the job, oldest first
        <pod>/<container>.log           lines as `kubectl logs --timestamps` prints them
        <pod>/<container>.previous.log  the log of the container before the last restart
        .run/                           files of a job that runs on this machine

Specs and logs can hold secrets, so only the owner may read the folders.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import copyfileobj

from msgspec import json
from msgspec.structs import replace

from kfjob.base.errors import BackendError, NotFound, Refused
from kfjob.base.file_access import OTHER_OWNER, find_foreign_access, name_file, open_private
from kfjob.base.parsing import decode_json, read_document
from kfjob.joblog.events import TRAINING_CONTAINER, JobSnapshot, KubernetesEvent, WorkloadStatus

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
RUN = ".run"
SPEC = "spec.json"
MANIFEST = "manifest.json"
STATUS = "status.json"
EVENTS = "events.json"


def launch_folder(root: Path, namespace: str, job: str, launch: str) -> Path:
    """Return the path of a launch's folder.

    Raises:
        BackendError: a name could lead out of the folder.
    """
    return root / check_name(namespace) / check_name(job) / check_name(launch)


def check_name(name: str) -> str:
    """Return a name that comes from elsewhere, if it is safe as a part of a path.

    Raises:
        BackendError: the name is not one that Kubernetes would accept.
    """
    if not is_name(name):
        raise BackendError(f"`{name[:80]}` cannot be the name of a file", cause="it is not a name of Kubernetes")
    return name


def is_name(name: str) -> bool:
    """Return whether a name that comes from elsewhere is safe as a part of a path, and visible."""
    return _NAME.fullmatch(name) is not None


def list_launches(root: Path, namespace: str, job: str) -> list[Path]:
    """Return the folders of all launches of a job under `root`, oldest first."""
    if not (is_name(namespace) and is_name(job)):
        return []
    return sorted(list_folders(root / namespace / job), key=lambda folder: (read_created(folder), folder.name))


def list_folders(folder: Path) -> list[Path]:
    """Return the visible folders in `folder`, by name; none if it does not exist."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".") and entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def make_private(folder: Path) -> Path:
    """Create `folder` and its missing parents, readable for the owner only."""
    for path in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        path.mkdir(mode=0o700, exist_ok=True)
    return folder


def check_state_folder(root: Path, name: str = "") -> Path:
    """Check that nobody else can change the state folder, and the folder `name` in it: commands act on what they hold.

    Raises:
        Refused: another user owns one of them or may write it.
    """
    for path in dict.fromkeys([root, root / name]):
        try:
            cause = find_foreign_access(path.stat() if path == root else path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            continue
        if cause:
            hint = "set KFJOB_STATE to a folder of your own"
            if cause != OTHER_OWNER:
                hint = f"check who uses it, then run `chmod go-w {path}`; or {hint}"
            raise Refused("the state folder is not safe to use", location=str(path), cause=cause, hint=hint)
    return root


def write_snapshot(folder: Path, snapshot: JobSnapshot) -> None:
    """Replace the job's snapshot in the folder; a reader sees the old or the new one."""
    for file, text in ((folder / SPEC, snapshot.spec), (folder / MANIFEST, snapshot.manifest)):
        if text is not None and not file.exists():
            replace_file(file, text)
    replace_file(folder / STATUS, _to_json(replace(snapshot, spec=None, manifest=None)))


def read_snapshot(folder: Path) -> JobSnapshot:
    """Return the job's snapshot in the folder, without fields of a newer kfjob.

    Raises:
        NotFound: the folder holds no snapshot.
        BackendError: the file cannot be read or parsed.
    """
    try:
        snapshot = decode_json(read_document(folder / STATUS), JobSnapshot)
        return replace(snapshot, spec=_read_text(folder / SPEC), manifest=_read_text(folder / MANIFEST))
    except (FileNotFoundError, NotADirectoryError) as err:
        raise NotFound(f"`{folder}` holds no {STATUS}") from err
    except (OSError, ValueError) as err:
        raise _explain_damage(folder, STATUS, err) from err


def write_events(folder: Path, events: Sequence[KubernetesEvent | WorkloadStatus]) -> None:
    """Replace the cluster's events in the folder."""
    replace_file(folder / EVENTS, _to_json(events))


def read_events(folder: Path) -> list[KubernetesEvent | WorkloadStatus]:
    """Return the cluster's events in the folder; none if the file does not exist.

    Raises:
        BackendError: the file cannot be read or parsed.
    """
    try:
        return decode_json(_read_text(folder / EVENTS) or "[]", list[KubernetesEvent | WorkloadStatus])
    except (OSError, ValueError) as err:
        raise _explain_damage(folder, EVENTS, err) from err


def _explain_damage(folder: Path, name: str, err: OSError | ValueError) -> BackendError:
    """Return the error for a record that this process cannot read."""
    if isinstance(err, OSError):
        return BackendError(f"`{err.filename or folder / name}` cannot be read", cause=err.strerror or str(err))
    hint = f"if no process of the job runs any more, move the folder `{folder}` away: kfjob then ignores this launch"
    return BackendError(f"the record `{folder / name}` is damaged", cause=str(err), hint=hint)


def log_path(folder: Path, pod: str, container: str = TRAINING_CONTAINER, *, previous: bool = False) -> Path:
    """Return the path of a container's log.

    Raises:
        BackendError: a name could lead out of the folder.
    """
    return folder / check_name(pod) / f"{check_name(container)}{'.previous' if previous else ''}.log"


def find_logs(folder: Path) -> dict[str, Path]:
    """Return the logs of a folder by pod: `<pod>/<container>.log`, or `<pod>.log` as a loop over `kubectl logs` writes them.

    If only `.previous.log` exists, the path is the one that the present log would have. If a pod has several containers, the
    path is that of the training container.
    """
    logs = _find_container_logs(folder)
    for pod in list_folders(folder):
        containers = _find_container_logs(pod)
        if log := containers.get(TRAINING_CONTAINER) or (next(iter(containers.values())) if len(containers) == 1 else None):
            logs[pod.name] = log
    return logs


def _find_container_logs(folder: Path) -> dict[str, Path]:
    names = {file.name.removesuffix(".log").removesuffix(".previous") for file in folder.glob("*.log") if file.is_file()}
    return {name: folder / f"{name}.log" for name in sorted(names)}


def previous_log_path(log: Path) -> Path:
    """Return the path of the previous container's log, beside the present one."""
    return log.with_name(f"{log.name.removesuffix('.log')}.previous.log")


def keep_as_previous(folder: Path, pods: Iterable[str]) -> None:
    """Append the logs of pods to those of their previous containers, because later pods with these names begin new logs."""
    for log in (log_path(folder, pod) for pod in pods):
        if log.exists():
            with log.open("rb") as lines, open_private(previous_log_path(log), "ab") as previous:
                copyfileobj(lines, previous)
            log.unlink()


def _to_json(value: object) -> str:
    return json.format(json.encode(value), indent=1).decode()


def _read_text(file: Path) -> str | None:
    try:
        return read_document(file).decode()
    except FileNotFoundError:
        return None


def replace_file(file: Path, text: str) -> None:
    """Replace the content of a file; a reader sees the old or the new one."""
    staged = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_native_id()}")  # several threads may write the file
    try:
        staged.unlink(missing_ok=True)
        # never through a link that another user has put there
        with name_file(file), open_private(staged, "x", encoding="utf-8") as stream:
            stream.write(text)
        staged.replace(file)
    except OSError:
        with suppress(OSError):
            staged.unlink()
        raise


def read_created(folder: Path) -> int:
    """Return when the job in the folder was created; 0 if the folder does not say it."""
    try:
        return read_snapshot(folder).job.created or 0
    except (NotFound, BackendError):
        return 0
