"""A launch in one file: the folder of `backends.folder` as a `.zip`. What others send is unpacked within limits."""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from pathlib import Path

from kfjob.backends import folder as layout
from kfjob.backends.saved_logs import MAX_UNPACKED_BYTES
from kfjob.base.errors import UsageError
from kfjob.base.file_access import open_private
from kfjob.base.units import MIB

ENDING = ".zip"
MAX_FILES = 20_000
"""Files of a bundle: a job of 5000 pods has two logs for each."""
_MAX_DEPTH = 3
"""The folder of the launch has files, and folders of pods with files."""


def is_bundle(path: Path) -> bool:
    """Return whether a path is a file with the name of a bundle."""
    return path.name.endswith(ENDING) and path.is_file()


def pack(folder: Path, file: Path) -> None:
    """Write the files of a folder to a `.zip` that only its owner may read.

    Raises:
        OSError: the file cannot be written.
    """
    staged = file.with_name(f".{file.name}.part")
    staged.unlink(missing_ok=True)
    try:
        with open_private(staged, "xb") as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as bundle:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    bundle.write(path, f"{folder.name}/{path.relative_to(folder)}")
        staged.replace(file)
    finally:
        staged.unlink(missing_ok=True)


def unpack(file: Path, parent: Path) -> Path:
    """Unpack a bundle into the folder `parent`, and return the folder of the launch or of the logs in it.

    Raises:
        UsageError: the file is no bundle, is damaged, leads out of the folder, or is larger than the limits.
    """
    folder = Path(tempfile.mkdtemp(dir=parent)) / (file.name.partition(".")[0] or "bundle")
    folder.mkdir()
    try:
        with zipfile.ZipFile(file) as bundle:
            _extract(bundle, folder)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, ValueError, NotImplementedError, RuntimeError) as err:
        hint = "`kfjob archive JOB` writes such a file"
        raise UsageError(f"`{file}` cannot be unpacked", cause=str(err), hint=hint) from err
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder


def _extract(bundle: zipfile.ZipFile, folder: Path) -> None:
    """Write the files, whose sizes are counted while they are read."""
    files = [member for member in bundle.infolist() if not member.is_dir()]
    left = MAX_UNPACKED_BYTES
    for count, member in enumerate(files, start=1):
        parts = member.filename.split("/")
        if len(parts) > _MAX_DEPTH or not all(layout.is_name(part) for part in parts):
            raise ValueError(f"`{member.filename[:80]}` cannot be a file of a launch")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("its compression is not that of `kfjob archive`")
        target = folder.joinpath(*parts)
        layout.make_private(target.parent)
        with bundle.open(member) as content, open_private(target, "xb") as out:
            while chunk := content.read(MIB):
                left -= len(chunk)
                if left < 0 or count > MAX_FILES:
                    raise ValueError(f"it has more than {MAX_FILES} files or {MAX_UNPACKED_BYTES // MIB} MiB")
                out.write(chunk)
