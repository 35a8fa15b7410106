"""An engine at work: its output passes through as it comes, and its last lines say why it failed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kfjob.errors import BackendError, Forbidden, KfjobError, NotFound, Refused, Unreachable, UsageError
from kfjob.image.build.engines import Engine
from kfjob.spec.image import BUILDERS

ShowLine = Callable[[str], None]
"""Told each line of an engine's output."""

_KEPT_LINES = 200
_SHOWN_LINES = 12
_PROBE_SECONDS = 30


def find_engine(wanted: str | None) -> Engine:
    """The engine that was asked for (a name, or a path that ends in one), else the first on PATH.

    Where there are others, docker without its daemon is not taken unasked.

    Raises:
        UsageError: there is none.
    """
    there = [program for name in ([wanted] if wanted else BUILDERS) if (program := shutil.which(name))]
    if len(there) > 1 and Path(there[0]).name == "docker" and _answer([there[0], "version"]) is None:
        del there[0]
    if there:
        return _engine(there[0])
    hint = "a change of code needs none: `kfjob push-image --code DIR --onto IMAGE`"
    if wanted:
        raise UsageError(f"there is no `{wanted}` on PATH", hint=f"`--builder` names another; {hint}")
    raise UsageError("there is nothing to build an image with", cause=f"none of {', '.join(BUILDERS)} is on PATH", hint=hint)


def _engine(program: str) -> Engine:
    name = Path(program).name
    if name != "docker":
        return Engine(name=name, program=program)  # type: ignore[arg-type]  # the spec allows no other
    if _answer([program, "buildx", "version"]) is not None:
        return Engine(name="docker", program=program, buildkit="buildx")
    says = _answer([program, "build", "--help"], DOCKER_BUILDKIT="1") or ""  # from version 23 on it fails without buildx
    return Engine(name="docker", program=program, buildkit="own" if "--secret" in says else "")


def _answer(argv: Sequence[str], **environment: str) -> str | None:
    """What a program prints; None: it fails."""
    try:
        done = subprocess.run(
            argv, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def run_engine(engine: Engine, argv: Sequence[str], *, show: ShowLine, environment: Mapping[str, str] | None = None) -> None:
    """Run an engine to its end.

    Raises:
        KfjobError: it failed; the cause is its own last words.
    """
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **engine.environment, **(environment or {})},
        )
    except OSError as err:
        raise BackendError(f"`{engine.program}` cannot be started", cause=str(err)) from err
    with child:
        try:
            for line in child.stdout or ():
                last.append(line.rstrip())
                show(line.rstrip())
        except BaseException:
            child.terminate()
            raise
    if child.returncode:
        raise explain_failure(engine.name, list(last), child.returncode)


_OF_A_COMMAND = re.compile(
    r'while running runtime|non-zero code|did not complete successfully|executor failed running|building at STEP "RUN'
)
"""A RUN that failed. Its words may be about anything; only that a disk is full is the same for all."""
_Symptom = tuple[str, type[KfjobError], str, str]
_SYMPTOMS: tuple[
    _Symptom, ...
] = (  # the first that is found in the last lines; texts of buildah 1.28, docker 20 to 28, BuildKit 0.8 to 0.18, nerdctl 2.1
    (
        r"no space left on device|disk quota exceeded|storing layer \S+ to file: io: read/write on closed pipe",
        BackendError,
        "there is no space left for the build",
        (
            "`df -h` shows which disk is full; `{engine} system prune` (or `{engine} rmi --prune`) removes old layers, "
            "TMPDIR names another folder for what is on its way"
        ),
    ),
    (
        r"permission denied while trying to connect to the Docker daemon",
        Forbidden,
        "you may not use the Docker daemon",
        "join the group `docker`, or use `--builder buildah` or `--builder podman`",
    ),
    (
        (
            r"cannot connect to the Docker daemon|Is the docker daemon running|no buildkit host is available"
            r"|`buildkitd` needs to be running|cannot access containerd socket"
        ),
        Unreachable,
        "the daemon of `{engine}` does not answer",
        "start it, or name another engine with `--builder`",
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
        "the base image may not be pulled, or is not there",
        "`{engine} login` for its registry; for one in ECR kfjob logs in by itself, with `--profile` as somebody who may",
    ),
    (
        (
            r"manifest unknown|manifest for .* not found|name unknown|repository name not known"
            r"|failed to (resolve source metadata|create LLB definition).*: not found"
            r"|short-name .* did not resolve|image not known"
        ),
        NotFound,
        "the base image is not there",
        "`--base-image` names another",
    ),
    (
        r"no such host|dial tcp|connection refused|i/o timeout|TLS handshake|x509: ",
        Unreachable,
        "the registry of the base image, or something that the build fetches, does not answer",
        "check the network, proxy and VPN",
    ),
    (
        r"COPY failed|failed to compute cache key|no such file or directory|no files? found|failed to calculate checksum",
        Refused,
        "the build misses a file",
        "is it in the context, and not kept out by `.dockerignore`?",
    ),
)


def explain_failure(engine: str, lines: Sequence[str], code: int) -> KfjobError:
    """What an engine's last lines mean."""
    said = [line for line in lines if line.strip()]
    errors = "\n".join(said[-_SHOWN_LINES:])
    cause = errors or f"`{engine}` ended with status {code}"
    known = _SYMPTOMS[:1] if _OF_A_COMMAND.search(errors) else _SYMPTOMS
    for pattern, kind, title, hint in known:
        if re.search(pattern, errors, re.IGNORECASE):
            return kind(title.format(engine=engine), cause=cause, hint=hint.format(engine=engine) or None)
    return Refused(f"the build failed (`{engine}` ended with status {code})", cause=cause, hint="nothing was pushed")
