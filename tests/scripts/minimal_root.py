"""A minimal Debian in a folder, like a new machine before any installation, and commands inside it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PACKAGES = ("python3", "python3-venv", "git", "ca-certificates")
# its programs that the project calls; test_fresh_machine.py compares this list with a real Debian
PROGRAMS = frozenset((Path(__file__).parent / "minimal-root.txt").read_text(encoding="utf-8").split())
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOME = "/root"
# Variables that configure access to package indexes; these variables and the files that they name are passed on.
PROXY_AND_INDEX = re.compile(
    r"(HTTPS?|NO)_PROXY|GO(PROXY|(NO)?SUMDB)|(PIP|UV)_(DEFAULT_)?INDEX(_URL)?|\w+_(CERT(_FILE)?|CA_BUNDLE)"
)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# The command runs in its own mount and pid namespaces with the folder as root; they end with it.
ENTER = """
set -eu
root=$1 folder=$2
shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
cd "$root"
mkdir -p .outside
pivot_root . .outside
python3 -c 'import ctypes; ctypes.CDLL(None).umount2(b"/.outside", 2)' # MNT_DETACH; the folder has no umount
cd "$folder"
exec "$@"
"""


@dataclass(frozen=True)
class MinimalRoot:
    """A Debian of this machine's release with `PACKAGES` and nothing else."""

    folder: Path

    def run(
        self, *argv: str, cwd: str = "/", output: IO[bytes] | None = None, timeout: float = 3600
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in it as root; the only inherited variables are those for package indexes."""
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, "enter", str(self.folder), cwd]
        return subprocess.run(
            [*enter, *argv],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )

    def programs(self) -> set[str]:
        """Return the names of all programs on its PATH."""
        folders = [self.folder / name.lstrip("/") for name in PATH.split(":")]
        return {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}


def create_root(folder: Path) -> MinimalRoot:
    """Create a minimal root with mmdebstrap, which takes half a minute and 400 MB."""
    include = ",".join(PACKAGES)
    argv = ["mmdebstrap", "--quiet", "--format=directory", "--variant=apt", f"--include={include}", release(), str(folder)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    for name in ("/etc/resolv.conf", "/etc/hosts", str(CERTIFICATES), *files_of(environment()), "/etc/pip.conf"):
        if (path := Path(name)).is_file():
            target = folder / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path.resolve(), target)
    return MinimalRoot(folder)


def release() -> str:
    """Return this machine's Debian release."""
    lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    names = dict(line.split("=", 1) for line in lines if "=" in line)
    return names.get("VERSION_CODENAME", "bookworm").strip('"')


def environment() -> dict[str, str]:
    """Return a login environment with the variables for package indexes."""
    index_variables = {name: value for name, value in os.environ.items() if PROXY_AND_INDEX.fullmatch(name.upper())}
    return {"PATH": PATH, "HOME": HOME, "LANG": "C.UTF-8", "TERM": "dumb"} | index_variables


def files_of(variables: dict[str, str]) -> list[str]:
    return [value for value in variables.values() if value.startswith("/") and ":" not in value]
