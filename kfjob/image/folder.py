"""The files of a folder that go into an image: in one order, without what is ignored, and nothing from outside it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal

from kfjob.errors import NotFound, Refused, UsageError
from kfjob.image.ignore import IgnorePatterns, parse_ignore

IGNORE_FILE = ".dockerignore"
DEFAULT_IGNORE = ".git\n.hg\n.svn\n.venv\n**/__pycache__\n**/*.pyc\n**/.ipynb_checkpoints\n**/.*_cache\n**/.DS_Store\n"
"""What is ignored in a folder that has no `.dockerignore`."""
_PIECE = 1024 * 1024
_SECRET_NAMES = re.compile(
    r"\.env(\.(?!example|sample|template|dist).*)?|.*\.(pem|key|p12|pfx|kdbx)|id_(rsa|dsa|ecdsa|ed25519)"
    r"|\.netrc|\.pypirc|\.npmrc|\.git-credentials|\.htpasswd|kubeconfig|service-account.*\.json",
    re.IGNORECASE,
)
_SECRET_PATHS = re.compile(r"(.*/)?(\.aws/credentials|\.docker/config\.json|\.kube/config|\.huggingface/token)")
_PRIVATE_KEY = re.compile(rb"\s*-----BEGIN [A-Z ]*PRIVATE KEY-----")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file, folder or link, as it goes into the image: no owner, no times, and of the rights only who may execute."""

    path: str  # from the folder, with `/`
    kind: Literal["file", "folder", "link"]
    source: Path
    executable: bool = False
    link_target: str = ""  # of a link
    file_state: tuple[int, ...] = ()  # of a file: what changes when somebody writes to it

    @property
    def size(self) -> int:
        """Bytes of a file."""
        return self.file_state[0] if self.file_state else 0

    def read_pieces(self) -> Iterator[bytes]:
        """What is in a file.

        Raises:
            Refused: it is changed while it is read, or was since the folder was looked through.
        """
        left = self.size
        try:
            with self.source.open("rb") as stream:
                while piece := stream.read(_PIECE):
                    left -= len(piece)
                    if left < 0:
                        break
                    yield piece
                after = _state(os.fstat(stream.fileno()))
        except OSError as err:
            raise Refused(f"`{self.source}` cannot be read", cause=err.strerror) from err
        if left or after != self.file_state:
            hint = "something writes to it: wait until it is done, or name it in `.dockerignore`"
            raise Refused(f"`{self.source}` was changed while it was read", hint=hint)

    @cached_property
    def looks_secret(self) -> bool:
        """Whether it is a file that one does not give away, by its name or because it is a private key."""
        name = PurePosixPath(self.path).name
        if self.kind != "file":
            return False
        if _SECRET_NAMES.fullmatch(name) or _SECRET_PATHS.fullmatch(self.path):
            return not name.endswith(".pub")
        return self.size < _PIECE and bool(_PRIVATE_KEY.match(next(self.read_pieces(), b"")))


@dataclass(frozen=True, kw_only=True)
class Folder:
    """All entries, sorted by their path's parts: a folder stands before what is in it."""

    root: Path
    entries: tuple[Entry, ...]

    @property
    def secret_paths(self) -> tuple[str, ...]:
        """Paths of the files that should perhaps not go into an image."""
        return tuple(entry.path for entry in self.entries if entry.looks_secret)

    def compute_digest(self) -> str:
        """Of all names and contents: the same folder gives the same, wherever it is and whenever it was written."""
        whole = hashlib.sha256()
        for entry in self.entries:
            content = hashlib.sha256()
            for piece in entry.read_pieces() if entry.kind == "file" else ():
                content.update(piece)
            said = (entry.kind, entry.path, "x" if entry.executable else "", entry.link_target, content.hexdigest())
            whole.update("\0".join(said).encode("utf-8", "surrogateescape") + b"\n")
        return f"sha256:{whole.hexdigest()}"


def format_secrets_warning(folder: Folder) -> str | None:
    """What to say about such files, if there are any."""
    found = folder.secret_paths
    if not found:
        return None
    shown = ", ".join(f"`{path}`" for path in found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")  # noqa: PLR2004
    return f"warning: {shown} may hold secrets, and whoever pulls the image can read them\nhint: name them in `{IGNORE_FILE}`"


def read_folder(root: Path, *, ignore: IgnorePatterns | None = None) -> Folder:
    """Everything in a folder that goes into an image; `ignore`: instead of what its own `.dockerignore` says.

    Raises:
        NotFound: it is no folder.
        UsageError: its `.dockerignore` cannot be read, or it holds something that is neither file, folder nor link.
        Refused: a link leads out of it.
    """
    if not root.is_dir():
        raise NotFound(f"`{root}` is not a folder")
    real = root.resolve()
    ignore = ignore or _own_ignore(real)
    found = sorted(_within(real, real, ignore), key=lambda entry: entry.path.split("/"))
    return Folder(root=root, entries=tuple(found))


def _own_ignore(root: Path) -> IgnorePatterns:
    file = root / IGNORE_FILE
    try:
        return (
            parse_ignore(file.read_text(encoding="utf-8"), file=str(file)) if file.is_file() else parse_ignore(DEFAULT_IGNORE)
        )
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError(f"`{file}` cannot be read", cause=str(err)) from err


def _within(root: Path, folder: Path, ignore: IgnorePatterns) -> Iterator[Entry]:
    """Entries beneath a folder. One that is left out is still there for the sake of what came back within it."""
    try:
        children = list(os.scandir(folder))
    except OSError as err:
        raise UsageError(f"`{folder}` cannot be read", cause=err.strerror) from err
    for child in children:
        path, source = Path(child.path).relative_to(root).as_posix(), Path(child.path)
        omitted = ignore.excludes(path)
        if child.is_dir(follow_symlinks=False):
            inner = list(_within(root, source, ignore)) if not omitted or ignore.may_include_again(path) else []
            if inner or not omitted:
                yield Entry(path=path, kind="folder", source=source)
            yield from inner
        elif not omitted:
            yield _entry(root, path, source, child)


def _entry(root: Path, path: str, source: Path, child: os.DirEntry[str]) -> Entry:
    if child.is_symlink():
        return Entry(path=path, kind="link", source=source, link_target=_checked_target(root, path, source))
    status = child.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        hint = f"name it in `{IGNORE_FILE}`"
        raise UsageError(f"`{source}` is neither a file, a folder nor a link", hint=hint)
    executable = bool(status.st_mode & stat.S_IXUSR)
    return Entry(path=path, kind="file", source=source, executable=executable, file_state=_state(status))


def _checked_target(root: Path, path: str, source: Path) -> str:
    target = os.readlink(source)  # noqa: PTH115 - as it is written, which a Path would tidy
    within = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120 - by its text
    real = Path(os.path.realpath(source))
    if target.startswith("/") or within.startswith("..") or not real.is_relative_to(root):
        hint = f"copy what is meant into the folder, or name the link in `{IGNORE_FILE}`"
        raise Refused(f"link `{source}` leads out of the folder", cause=f"to `{target}`", hint=hint)
    return target


def _state(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)
