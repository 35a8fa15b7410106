"""List the files of a folder that go into an image: sorted, without ignored files, and nothing from outside the folder."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

from msgspec import Struct

from kfjob.base.errors import NotFound, Refused, UsageError
from kfjob.base.parsing import ParseError, read_document
from kfjob.base.text import join_names
from kfjob.base.units import MIB
from kfjob.image.ignore import IgnorePatterns, parse_ignore
from kfjob.image.secret_files import MAX_CONTENT_BYTES, find_secret_folder, is_secret_file

IGNORE_FILE = ".dockerignore"
DEFAULT_IGNORE = "**/.git\n.hg\n.svn\n.venv\n**/__pycache__\n**/*.pyc\n**/.ipynb_checkpoints\n**/.*_cache\n**/.DS_Store\n"
"""Patterns for a folder that has no `.dockerignore`."""
OWN_IGNORE = "**/*-report.html\n"
"""What kfjob writes beside the code: `JOB-report.html`. A `.dockerignore` can include it again."""
MAX_DEPTH = 200
"""Nested folders of code that goes into an image."""
MAX_ENTRIES = 200_000
"""Files, folders and links of code that goes into an image."""
MAX_IGNORE_BYTES = MIB
"""Size of a `.dockerignore`."""
_PIECE = 1024 * 1024


class Entry(Struct, frozen=True, kw_only=True, dict=True):
    """A file, folder or link as it goes into the image: without owner, times and mode, except for the executable bit."""

    path: str  # relative to the folder, with `/`
    kind: Literal["file", "folder", "link"]
    source: Path
    executable: bool = False
    link_target: str = ""
    file_state: tuple[int, ...] = ()  # size, mtime, inode and device of a file: they change with its content

    @property
    def size(self) -> int:
        """The size of a file in bytes."""
        return self.file_state[0] if self.file_state else 0

    def read_pieces(self) -> Iterator[bytes]:
        """Return the content of a file, piece by piece.

        Raises:
            Refused: the file cannot be read, or changed after `read_folder`.
        """
        remaining = self.size
        try:
            with os.fdopen(os.open(self.source, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:  # it may be a FIFO by now
                while piece := stream.read(_PIECE):
                    remaining -= len(piece)
                    if remaining < 0:
                        break
                    yield piece
                current_state = _make_state(os.fstat(stream.fileno()))
        except OSError as err:
            raise Refused(f"`{self.source}` cannot be read", cause=err.strerror) from err
        if remaining or current_state != self.file_state:
            hint = "wait until the program that writes it is done, or exclude the file in `.dockerignore`"
            raise Refused(f"`{self.source}` changed while it was read", hint=hint)

    @cached_property
    def looks_secret(self) -> bool:
        """Whether the file probably holds a secret, by its name, its folder or its content."""
        if self.kind != "file":
            return False
        if find_secret_folder(self.path):
            return True
        content = next(self.read_pieces(), b"") if self.size < MAX_CONTENT_BYTES else b""
        return is_secret_file(self.path, content.decode("utf-8", "replace"))


class Folder(Struct, frozen=True, kw_only=True):
    """The entries of a folder, sorted by the parts of their paths: a folder precedes its contents."""

    root: Path
    entries: tuple[Entry, ...]

    @property
    def secret_paths(self) -> tuple[str, ...]:
        """The paths of the files that probably hold secrets; a folder such as `.aws` stands for its files."""
        secrets = (entry.path for entry in self.entries if entry.looks_secret)
        return tuple(dict.fromkeys(find_secret_folder(path) or path for path in secrets))

    def compute_digest(self) -> str:
        """Return the digest of all paths and contents. It does not depend on where the folder is, nor on file times."""
        total = hashlib.sha256()
        for entry in self.entries:
            content = hashlib.sha256()
            for piece in entry.read_pieces() if entry.kind == "file" else ():
                content.update(piece)
            fields = (entry.kind, entry.path, "x" if entry.executable else "", entry.link_target, content.hexdigest())
            total.update("\0".join(fields).encode("utf-8", "surrogateescape") + b"\n")
        return f"sha256:{total.hexdigest()}"


def format_secrets_warning(folder: Folder) -> str | None:
    """Return the warning about files that probably hold secrets; None if the folder has none."""
    if not folder.secret_paths:
        return None
    paths = join_names(f"`{path}`" for path in folder.secret_paths)
    return f"warning: {paths} may hold secrets that everyone with the image can read\nhint: exclude them in `{IGNORE_FILE}`"


def refuse_secrets(folder: Folder, allowed: Sequence[str]) -> None:
    """Raise an error about files that probably hold secrets and that no pattern of `allowed` names (as in `.dockerignore`).

    Raises:
        Refused: the folder holds such files.
        UsageError: a pattern is not valid.
    """
    patterns = parse_ignore("\n".join(allowed), file="--include")
    secrets = [path for path in folder.secret_paths if not _is_allowed(path, folder, patterns)]
    if not secrets:
        return
    paths = join_names(f"`{path}`" for path in secrets)
    raise Refused(
        f"`{folder.root}` holds files that look like secrets: {paths}",
        cause="everyone with the image could read them",
        hint=f"exclude them in `{IGNORE_FILE}`, or add them with `--include {secrets[0]}`",
    )


def _is_allowed(path: str, folder: Folder, patterns: IgnorePatterns) -> bool:
    """Return whether the patterns name a secret file, or all secret files beneath a folder."""
    files = [entry.path for entry in folder.entries if entry.looks_secret and find_secret_folder(entry.path) == path]
    return all(map(patterns.excludes, files or [path]))


def read_folder(root: Path, *, ignore: IgnorePatterns | None = None, may_link_out: bool = False) -> Folder:
    """Return the entries of a folder that go into an image; `ignore` replaces the folder's own `.dockerignore`.

    With `may_link_out` links may lead out of the folder: an engine copies a link as it is, and nothing outside its context.

    Raises:
        NotFound: the path is not a folder.
        UsageError: its `.dockerignore` cannot be read, it has more than `MAX_ENTRIES`, or an entry is neither a file, a folder
            nor a link.
        Refused: a link leads out of the folder.
    """
    if not root.is_dir():
        raise NotFound(f"`{root}` is not a folder")
    real = root.resolve()
    if ignore is None:
        own, users = parse_ignore(OWN_IGNORE), read_ignore_file(real / IGNORE_FILE) or parse_ignore(DEFAULT_IGNORE)
        ignore = IgnorePatterns(own.patterns + users.patterns)
    entries = list(islice(_list_entries(real, real, ignore, may_link_out=may_link_out), MAX_ENTRIES + 1))
    if len(entries) > MAX_ENTRIES:
        hint = f"exclude data and environments in `{IGNORE_FILE}`"
        raise UsageError(f"`{root}` has more than {MAX_ENTRIES:,} files and folders", hint=hint)
    return Folder(root=root, entries=tuple(sorted(entries, key=lambda entry: entry.path.split("/"))))


def read_ignore_file(file: Path) -> IgnorePatterns | None:
    """Return the patterns of a `.dockerignore`; None if there is none.

    Raises:
        UsageError: the file cannot be read, is too large, or a line is not a pattern.
    """
    try:
        if not file.is_file():
            return None
        return parse_ignore(read_document(file, max_bytes=MAX_IGNORE_BYTES).decode(), file=str(file))
    except (OSError, ParseError, UnicodeDecodeError) as err:
        raise UsageError(f"`{file}` cannot be read", cause=str(err)) from err


def _list_entries(root: Path, folder: Path, ignore: IgnorePatterns, *, may_link_out: bool) -> Iterator[Entry]:
    """Yield the entries beneath a folder. An excluded folder is listed if a `!` pattern includes something within it."""
    if len(folder.relative_to(root).parts) > MAX_DEPTH:
        raise UsageError(f"`{root}` is more than {MAX_DEPTH} folders deep", hint=f"exclude the inner ones in `{IGNORE_FILE}`")
    try:
        children = list(os.scandir(folder))
    except OSError as err:
        raise UsageError(f"`{folder}` cannot be read", cause=err.strerror) from err
    for child in children:
        path, source = Path(child.path).relative_to(root).as_posix(), Path(child.path)
        is_excluded = ignore.excludes(path)
        if child.is_dir(follow_symlinks=False):
            is_searched = not is_excluded or ignore.may_include_again(path)
            contents = _list_entries(root, source, ignore, may_link_out=may_link_out) if is_searched else iter(())
            first = next(contents, None) if is_excluded else None
            if first or not is_excluded:
                yield Entry(path=path, kind="folder", source=source)
            yield from [first] if first else []
            yield from contents
        elif not is_excluded:
            yield _make_entry(root, path, source, child, may_link_out=may_link_out)


def _make_entry(root: Path, path: str, source: Path, child: os.DirEntry[str], *, may_link_out: bool) -> Entry:
    if child.is_symlink():
        return Entry(
            path=path, kind="link", source=source, link_target=_read_link(root, path, source, may_link_out=may_link_out)
        )
    try:
        status = child.stat(follow_symlinks=False)
    except OSError as err:
        raise Refused(f"`{source}` cannot be read", cause=err.strerror) from err
    if not stat.S_ISREG(status.st_mode):
        hint = f"exclude it in `{IGNORE_FILE}`"
        raise UsageError(f"`{source}` is neither a file, a folder nor a link", hint=hint)
    executable = bool(status.st_mode & stat.S_IXUSR)
    return Entry(path=path, kind="file", source=source, executable=executable, file_state=_make_state(status))


def _read_link(root: Path, path: str, source: Path, *, may_link_out: bool) -> str:
    """Return the target of a link.

    Raises:
        Refused: the link leads out of the folder, and may not.
    """
    target = os.readlink(source)  # noqa: PTH115 - verbatim; a Path would normalise it
    if may_link_out:
        return target
    within = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120 - by its text
    real = Path(os.path.realpath(source))
    if target.startswith("/") or within.startswith("..") or not real.is_relative_to(root):
        hint = f"copy the target into the folder, or exclude the link in `{IGNORE_FILE}`"
        raise Refused(f"link `{source}` leads out of the folder", cause=f"its target is `{target}`", hint=hint)
    return target


def _make_state(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)
