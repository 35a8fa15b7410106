"""Mount the volumes of a job at their paths, in a mount namespace that only its processes have (mount_namespaces(7)).

So a path in the code leads to the same folder as one in an argument, which kfjob replaces by that folder. Root needs only
the mount namespace. Other users also need a user namespace (user_namespaces(7)): in it `sudo` does not work, and files of
other users belong to `nobody`. Some systems forbid it, so `can_mount` first runs this module as a trial.

A mount needs a mount point. One that the user cannot make, such as `/workspace`, is made in a read-only tmpfs that shows all
entries of its parent.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000  # linux/sched.h
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 1 << 5, 1 << 12, 1 << 14, 1 << 19  # linux/mount.h
_MNT_DETACH = 2
_OLD_ROOT = Path("/.kfjob-root")
_MAX_ENTRIES = 256
"""Entries of a folder that is copied into a tmpfs: each is a mount."""
_PROBE_SECONDS = 5
"""Time that a probe has; only a file system that hangs takes so long."""
_DEVICES = ("/dev", "/proc", "/sys")
"""Folders in which nothing is mounted, because the machine's devices and its shared memory are there."""
_SYSTEM = ("/etc/passwd", "/usr/lib", "/lib", "/lib64", "/var/lib", "/run")
"""Paths that programs need without being told."""


def select_mounts(folders: Mapping[str, str], used: Iterable[str]) -> dict[str, str]:
    """Return the folders (mount path -> folder) without those that would hide a path of this machine that the job uses."""
    needed = [name for path in (*used, *folders.values(), *_SYSTEM) for name in _resolve(Path(path))]

    def is_free(path: Path, folder: Path) -> bool:
        in_devices = any(path.is_relative_to(devices) for devices in _DEVICES)
        is_used = any(name.is_relative_to(path) for name in needed)
        return path != folder and not in_devices and not is_used and _fits(path, folder)

    return {path: folder for path, folder in folders.items() if is_free(Path(path).resolve(), Path(folder).resolve())}


def _fits(path: Path, folder: Path) -> bool:
    """Return whether a folder, or a file, can be mounted at a path: nothing of the other kind is there or above it."""
    if not _exists(path):
        return _find_parent(path).is_dir()
    return path.is_dir() == (folder.is_dir() or not _exists(folder))


def _resolve(path: Path) -> tuple[Path, Path]:
    """Return the path of a link, in a folder without links, and what the link leads to."""
    return path.parent.resolve() / path.name, path.resolve()


def locate(path: Path, mounts: Mapping[str, str]) -> Path:
    """Return where the rest of the machine finds a file that has this path for the job's processes."""
    inside = [mount for mount in mounts if path.is_relative_to(mount)]
    return Path(mounts[mount], path.relative_to(mount)) if (mount := max(inside, key=len, default="")) else path


@cache
def can_mount(paths: tuple[str, ...]) -> bool:
    """Return whether this user can mount volumes at these paths: another process tries it."""
    if not paths or sys.platform != "linux":
        return False
    argv = [sys.executable, "-P", "-m", "kfjob.local.volume_mounts", *paths]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(argv, capture_output=True, timeout=_PROBE_SECONDS, check=False).returncode == 0
    return False


def main() -> None:
    """Try it: mount the folder for temporary files at the paths of the command line, and make no mount point on the disk."""
    paths = [Path(path).resolve() for path in sys.argv[1:]]
    outer = [path for path in paths if not any(other in path.parents for other in paths)]
    probed = [path for path in outer if _exists(path) or not os.access(_find_parent(path), os.W_OK)]
    enter_user_namespace()
    mount_volumes({str(path): tempfile.gettempdir() for path in probed if not _exists(path) or path.is_dir()})


def enter_user_namespace() -> None:
    """Give this process the right to mount in namespaces of its own. Root has it, or would lose other rights for it.

    The process keeps its user and its group. It must have one thread.

    Raises:
        OSError: the system forbids it.
    """
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        return
    _call("unshare", _CLONE_NEWUSER)
    for name, text in (("uid_map", f"{user} {user} 1"), ("setgroups", "deny"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text, encoding="ascii")


def mount_volumes(mounts: Mapping[str, str]) -> None:
    """Enter a new mount namespace, and mount folders (mount path -> folder) there. The current folder stays.

    Raises:
        OSError: a mount failed, after a line about it on stderr. The process should end.
    """
    try:
        current = Path.cwd()
        _call("unshare", _CLONE_NEWNS)
        _mount(None, Path("/"), _MS_SLAVE | _MS_REC)  # the machine's later mounts appear here, and these never there
        resolved = {Path(path).resolve(): Path(folder) for path, folder in mounts.items()}
        copies = [copy for path in sorted(resolved) if (copy := _mount_volume(path, resolved[path]))]
        for copy in copies:
            _mount(None, copy, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
        os.chdir(current)
    except OSError as err:
        message = f"kfjob: cannot mount the volumes at their paths, so paths in the code are those of this machine: {err}\n"
        os.write(2, message.encode(errors="replace"))
        raise


def _mount_volume(path: Path, folder: Path) -> Path | None:
    """Mount a folder, or a file; return the folder that had to be copied for the mount point."""
    folder.stat()  # raises an error that names it, before there is a mount point for nothing
    copy = None
    try:
        _make_mount_point(path, folder)
    except OSError:
        copy = _find_parent(path)
        _copy_into_tmpfs(copy)
        _make_mount_point(path, folder)
    _mount(folder, path, _MS_BIND | _MS_REC)
    return copy


def _make_mount_point(path: Path, source: Path) -> None:
    if source.is_dir():
        path.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _exists(path: Path) -> bool:
    """Return whether something has this path, as far as the user can see."""
    return os.access(path, os.F_OK)


def _find_parent(path: Path) -> Path:
    """Return the nearest folder above a path that exists."""
    return next(parent for parent in path.parents if _exists(parent))


def _copy_into_tmpfs(folder: Path) -> None:
    """Mount a tmpfs over a folder, with mounts of the folder's entries in it; over `/` it becomes the root."""
    names = [entry.name for entry in folder.iterdir()] if os.access(folder, os.X_OK) else []  # the user reaches nothing there
    if len(names) > _MAX_ENTRIES:
        raise OSError(errno.E2BIG, f"more than {_MAX_ENTRIES} entries in {folder}")
    if folder == Path("/"):
        temporary = Path(tempfile.gettempdir())
        _mount_tmpfs(temporary)
        (temporary / _OLD_ROOT.name).mkdir()
        _call("pivot_root", bytes(temporary), bytes(temporary / _OLD_ROOT.name))
        os.chdir("/")
        _bind_entries(names, _OLD_ROOT, folder)
        _call("umount2", bytes(_OLD_ROOT), _MNT_DETACH)
        _OLD_ROOT.rmdir()
    else:
        old = os.open(folder, os.O_PATH)
        _mount_tmpfs(folder)
        _bind_entries(names, Path(f"/proc/self/fd/{old}"), folder)
        os.close(old)


def _bind_entries(names: Iterable[str], source: Path, target: Path) -> None:
    for old, new in ((source / name, target / name) for name in names):
        if old.is_symlink():
            new.symlink_to(old.readlink())
        else:
            _make_mount_point(new, old)
            _mount(old, new, _MS_BIND | _MS_REC)


def _mount_tmpfs(path: Path) -> None:
    _call("mount", b"tmpfs", bytes(path), b"tmpfs", ctypes.c_ulong(0), b"mode=755")


def _mount(source: Path | None, target: Path, flags: int) -> None:
    _call("mount", bytes(source) if source else None, bytes(target), None, ctypes.c_ulong(flags), None)


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0.

    Raises:
        OSError: it failed.
    """
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        error = ctypes.get_errno()
        paths = b" ".join(argument for argument in arguments if isinstance(argument, bytes))
        raise OSError(error, f"{name} {os.fsdecode(paths)}: {os.strerror(error)}")


if __name__ == "__main__":
    main()
