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

from kfjob.base.errors import BackendError, Forbidden, KfjobError, NotFound, Refused, Unreachable, UsageError
from kfjob.base.programs import running
from kfjob.image.build.dockerfile import has_heredoc
from kfjob.image.build.engines import BUILDERS, Engine

ShowLine = Callable[[str], None]
"""Receives a line of an engine's output."""

_MAX_LINES = 200
"""Last lines of a build engine's output in which the cause of a failure is searched."""
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


_HEREDOC_VERSIONS = {"buildah": (1, 33), "podman": (4, 8)}
"""The first versions that read heredocs."""
_VERSION = re.compile(r"version v?(\d+)\.(\d+)")


def reads_heredocs(engine: Engine) -> bool:
    """Return whether the engine reads heredocs in a Dockerfile; docker's classic builder does not."""
    if engine.name == "docker":
        return bool(engine.buildkit)
    first = _HEREDOC_VERSIONS.get(engine.name)
    version = _VERSION.search(_probe([engine.program, "--version"]) or "") if first else None
    return version is None or first is None or (int(version[1]), int(version[2])) >= first


def run_engine(
    engine: Engine,
    argv: Sequence[str],
    *,
    show: ShowLine,
    environment: Mapping[str, str] | None = None,
    dockerfile: str = "",
) -> None:
    """Run an engine until it exits. `dockerfile` is the text that it builds.

    Raises:
        KfjobError: the engine failed; the cause is the end of its output.
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
        skips_heredocs = has_heredoc(dockerfile) and not reads_heredocs(engine)
        raise explain_failure(engine.name, list(lines), code, skips_heredocs=skips_heredocs)


@contextmanager
def _running_engine(engine: Engine, argv: Sequence[str], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with ExitStack() as stack:
        try:
            process = stack.enter_context(running(argv, environment=variables))
        except OSError as err:
            raise BackendError(f"`{engine.program}` cannot be started", cause=str(err)) from err
        yield process


_FAILED_COMMAND = re.compile(
    r'while running runtime|non-zero code|did not complete successfully|executor failed running|building at STEP "RUN'
)
"""A RUN instruction that failed. Its output may be about anything, so only a full disk is recognised in it."""
_Symptom = tuple[str, type[KfjobError], str, str]
_SYMPTOMS: tuple[
    _Symptom, ...
] = (  # the first match in the last lines; texts of buildah 1.28, docker 20 to 28, BuildKit 0.8 to 0.18, nerdctl 2.1
    (
        r"no space left on device|disk quota exceeded|storing layer \S+ to file: io: read/write on closed pipe",
        BackendError,
        "no space is left for the build",
        (
            "`df -h` shows which disk is full; `{engine} system prune` (or `{engine} rmi --prune`) removes old layers, "
            "TMPDIR sets another folder for temporary files"
        ),
    ),
    (
        r"permission denied while trying to connect to the Docker daemon",
        Forbidden,
        "not allowed to use the Docker daemon",
        "join the group `docker`, or use `--builder buildah` or `--builder podman`",
    ),
    (
        (
            r"cannot connect to the Docker daemon|Is the docker daemon running|no buildkit host is available"
            r"|`buildkitd` needs to be running|cannot access containerd socket"
        ),
        Unreachable,
        "the daemon of `{engine}` does not answer",
        "start the daemon, or use another `--builder`",
    ),
    (
        r"the --mount option requires BuildKit",
        Refused,
        "docker's classic builder cannot build this Dockerfile",
        "install docker's buildx plugin, or use another `--builder`",
    ),
    (
        (
            r"dockerfile parse error|unknown instruction|Unknown flag|no build stage in current context|is neither an image nor"
            r"|failed to parse stage name|invalid reference format|target stage .* (could not be found|not found)"
            r"|was not found in the provided Dockerfile"
            r"|base name \(.*\) should not be blank|no FROM statement found"
        ),
        Refused,
        "the Dockerfile has an error",
        "",
    ),
    (
        r"unauthorized|authentication required|no basic auth credentials|pull access denied|403 Forbidden|access forbidden",
        Forbidden,
        "the base image does not exist, or you are not allowed to pull it",
        "`{engine} login` to its registry; for ECR kfjob logs in itself, and `--profile` selects the AWS user",
    ),
    (
        (
            r"manifest unknown|manifest for .* not found|name unknown|repository name not known"
            r"|failed to (resolve source metadata|create LLB definition).*: not found"
            r"|short-name .* did not resolve|image not known"
        ),
        NotFound,
        "the base image does not exist",
        "set another with `--base-image`",
    ),
    (
        r"no such host|dial tcp|connection refused|i/o timeout|TLS handshake|x509: ",
        Unreachable,
        "a server that the build downloads from does not answer",
        "check the network, proxy and VPN",
    ),
    (
        r"COPY failed|failed to compute cache key|no such file or directory|no files? found|failed to calculate checksum",
        Refused,
        "the build needs a file that does not exist",
        "check that the file is in the context, and that `.dockerignore` does not exclude it",
    ),
)


_HEREDOC_TITLES = frozenset(
    (
        "the Dockerfile has an error",
        "the base image does not exist, or you are not allowed to pull it",
        "the base image does not exist",
        "the build needs a file that does not exist",
    )
)
"""Symptoms of an engine that takes the lines of a heredoc for files and instructions."""
_HEREDOC_HINT = (
    "use docker with BuildKit, buildah 1.33, podman 4.8 or a newer version, or write the text into a file of the context and "
    "COPY it"
)


def explain_failure(engine: str, lines: Sequence[str], code: int, *, skips_heredocs: bool = False) -> KfjobError:
    """Return the error that the last lines of an engine's output mean.

    With `skips_heredocs` the engine is one that takes the lines of the Dockerfile's heredocs for files and instructions.
    """
    tail = "\n".join([line for line in lines if line.strip()][-_CAUSE_LINES:])
    cause = tail or f"`{engine}` exited with code {code}"
    symptoms = _SYMPTOMS[:1] if _FAILED_COMMAND.search(tail) else _SYMPTOMS
    for pattern, error, title, hint in symptoms:
        if skips_heredocs and title in _HEREDOC_TITLES:
            continue
        if re.search(pattern, tail, re.IGNORECASE):
            return error(title.format(engine=engine), cause=cause, hint=hint.format(engine=engine) or None)
    if skips_heredocs and symptoms is _SYMPTOMS:
        title = f"the build failed, and this version of `{engine}` reads no heredocs, such as `<<EOF` in the Dockerfile"
        return Refused(title, cause=cause, hint=_HEREDOC_HINT)
    return Refused(f"the build failed (`{engine}` exited with code {code})", cause=cause, hint="nothing was pushed")
