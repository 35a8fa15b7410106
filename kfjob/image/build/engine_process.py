"""Find and run a container engine: its output is forwarded line by line, and its last lines explain a failure."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from kfjob.base.errors import BackendError, Refused, UsageError
from kfjob.base.programs import running
from kfjob.image.build.engines import BUILDERS, Engine

ShowLine = Callable[[str], None]
"""Receives a line of an engine's output."""

_MAX_LINES = 200
"""Lines at the end of a build engine's output that stay in memory."""
_CAUSE_LINES = 12
"""Last lines of a build engine's output that an error quotes."""
_PROBE_SECONDS = 30
"""Timeout of the check whether a build engine can be used."""


def find_engine(name: str | None) -> Engine:
    """Return the engine of this name or path, else the first engine on PATH.

    If there are several, docker without a running daemon is skipped, unless it is named.

    Raises:
        UsageError: no engine is on PATH.
    """
    programs = [program for builder in ([name] if name else BUILDERS) if (program := shutil.which(builder))]
    if len(programs) > 1 and Path(programs[0]).name == "docker" and _probe([programs[0], "version"]) is None:
        del programs[0]
    if programs:
        return _make_engine(programs[0])
    hint = "to change only code, use `kfjob push-image --code DIR --onto IMAGE`, which needs no engine"
    if name:
        raise UsageError(f"builder `{name}` is not on PATH", hint=f"name another with `--builder`; {hint}")
    raise UsageError("no container engine is on PATH", cause=f"looked for {', '.join(BUILDERS)}", hint=hint)


def _make_engine(program: str) -> Engine:
    name = Path(program).name
    if name != "docker":
        return Engine(name=name, program=program)  # type: ignore[arg-type]  # the spec allows no other
    if _probe([program, "buildx", "version"]) is not None:
        return Engine(name="docker", program=program, buildkit="buildx")
    usage = _probe([program, "build", "--help"], DOCKER_BUILDKIT="1") or ""  # fails without buildx from version 23 on
    return Engine(name="docker", program=program, buildkit="own" if "--secret" in usage else "")


def _probe(argv: Sequence[str], **environment: str) -> str | None:
    """Return what a program prints; None if it fails."""
    try:
        process = subprocess.run(
            argv, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout if process.returncode == 0 else None


def run_engine(
    engine: Engine,
    argv: Sequence[str],
    *,
    show: ShowLine,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run an engine until it exits.

    Raises:
        BackendError: the engine cannot be started.
        Refused: it failed; the cause is the end of its output.
    """
    lines: deque[str] = deque(maxlen=_MAX_LINES)
    variables = {**os.environ, **engine.environment, **(environment or {})}
    with _running_engine(engine, argv, variables) as process:
        with io.TextIOWrapper(cast("BinaryIO", process.stdout), encoding="utf-8", errors="replace") as output:
            for line in output:
                lines.append(line.rstrip())
                show(line.rstrip())
        code = process.wait()
    if code:
        raise explain_failure(engine.name, list(lines), code)


@contextmanager
def _running_engine(engine: Engine, argv: Sequence[str], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with ExitStack() as stack:
        try:
            process = stack.enter_context(running(argv, environment=variables))
        except OSError as err:
            raise BackendError(f"`{engine.program}` cannot be started", cause=str(err)) from err
        yield process


_HINTS = {
    r"permission denied while trying to connect to the Docker daemon": "join the group `docker`, or use another `--builder`",
    r"cannot connect to the Docker daemon|Is the docker daemon running|no buildkit host is available"
    r"|`buildkitd` needs to be running|cannot access containerd socket": (
        "start the daemon of `{engine}`, or use another `--builder`"
    ),
    r"the --mount option requires BuildKit": "install docker's buildx plugin, or use another `--builder`",
    r"no space left on device": "`{engine} system prune` removes old layers, TMPDIR sets another folder for temporary files",
    r"unauthorized|authentication required|no basic auth credentials|pull access denied|403 Forbidden": (
        "`{engine} login` to the registry of the base image; for ECR kfjob logs in itself, and `--profile` selects the AWS user"
    ),
}
"""What to do about the last lines of an engine, where it does not say so itself (buildah 1.28, docker 20 to 28)."""


def explain_failure(engine: str, lines: Sequence[str], code: int) -> Refused:
    """Return the error for an engine that failed, with the last lines of its output."""
    tail = "\n".join([line for line in lines if line.strip()][-_CAUSE_LINES:])
    hints = (hint for pattern, hint in _HINTS.items() if re.search(pattern, tail, re.IGNORECASE))
    hint = next(hints, "nothing was pushed").format(engine=engine)
    return Refused(f"the build failed (`{engine}` exited with code {code})", cause=tail or None, hint=hint)
