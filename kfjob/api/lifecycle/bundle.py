"""Write one file that holds a launch without its secrets: for a colleague, who reads it with `--from FILE`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.lifecycle.archive import write_job
from kfjob.api.reader import JobReader
from kfjob.backends import bundle, folder
from kfjob.base.errors import UsageError
from kfjob.base.parsing import ParseError, parse_json
from kfjob.redaction import Redactor
from kfjob.redaction.structs import redact_struct


class Bundle(Struct, frozen=True):
    """A file that was written, and the pods of the job that had no log."""

    file: Path
    pods_without_log: tuple[str, ...]


def write_bundle(reader: JobReader, file: Path | None = None) -> Bundle:
    """Write a live or an archived launch to a `.zip`, by default `JOB-LAUNCH.zip` in this folder.

    It holds what `stop` archives: the state, the logs, the events and the spec; here the spec has no secrets either.

    Raises:
        UsageError: the file cannot be written, or `--from` would not know it.
        NotFound: the job is gone.
    """
    if file and not file.name.endswith(bundle.ENDING):
        raise UsageError(f"`{file}` does not end with `{bundle.ENDING}`, so `--from` could not read it")
    snapshot, redactor = reader.snapshot(), Redactor(reader.secrets)
    shared = replace(
        snapshot,
        spec=_redact_json(snapshot.spec, redactor),
        manifest=_redact_json(snapshot.manifest, redactor),
        observe_config=_redact_json(snapshot.observe_config, redactor),
        relaunches=_redact_json(snapshot.relaunches or None, redactor) or "",
        labels=redactor.value(snapshot.labels),
        observed=snapshot.observed or time.time_ns(),
    )
    shared = redact_struct(shared, redactor)
    name = "-".join(folder.check_name(part) for part in (snapshot.name, snapshot.launch or snapshot.uid) if part)
    target = file or Path(f"{name}.zip")
    try:
        with TemporaryDirectory(prefix="kfjob-") as parent:
            path = folder.make_private(Path(parent, name))
            write_job(reader, shared, path, redactor, has_previous=reader.archived)
            logs = folder.find_logs(path)
            bundle.pack(path, target)
    except OSError as err:
        title, hint = f"cannot write `{target}`", "name another file with `-o`"
        raise UsageError(title, cause=err.strerror or str(err), hint=hint) from err
    return Bundle(target, tuple(pod.pod for pod in snapshot.pods if pod.pod not in logs))


def _redact_json(text: str | None, redactor: Redactor) -> str | None:
    """Return recorded JSON without secrets; None for JSON that kfjob cannot read."""
    try:
        return None if text is None else json.dumps(redactor.value(parse_json(text)))
    except ParseError:
        return None
