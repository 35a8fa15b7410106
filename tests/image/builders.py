"""Real engines with a storage of their own: nothing of the machine's images is seen or touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

DOCKERFILE = """\
ARG BASE_IMAGE=scratch
FROM ${BASE_IMAGE}
ARG GREETING=hello
COPY code /code
"""


@dataclass(frozen=True)
class Buildah:
    """Debian's buildah; its mounts stay in a mount namespace that ends with each call."""

    program: Path
    environment: dict[str, str]

    def labels(self, name: str) -> dict[str, str]:
        template = "{{range $key, $value := .OCIv1.Config.Labels}}{{$key}}={{$value}}\n{{end}}"
        words = [str(self.program), "inspect", "--type", "image", "--format", template, name]
        done = subprocess.run(words, env=os.environ | self.environment, capture_output=True, text=True, check=True)
        return dict(line.split("=", 1) for line in done.stdout.split())


def buildah(folder: Path) -> Buildah:
    real = shutil.which("buildah")
    assert real, "the tests of images need a builder\nhint: apt-get install buildah"
    bin_folder = folder / "bin"
    bin_folder.mkdir(parents=True)
    program = bin_folder / "buildah"
    program.write_text(f'#!/bin/sh\nexec unshare --mount {real} "$@"\n')
    program.chmod(0o755)
    storage = folder / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "overlay"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/storage"\n')
    policy = folder / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    return Buildah(program, {"CONTAINERS_STORAGE_CONF": str(storage), "BUILDAH_ISOLATION": "chroot"})


def context(folder: Path, line: str = "print('one')\n") -> Path:
    """A small thing to build."""
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "train.py").write_text(line)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    return folder
