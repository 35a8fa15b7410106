"""Folders: reading and packing."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import socket
import tarfile
from pathlib import Path

import pytest

from kfjob.errors import NotFound, Refused, UsageError
from kfjob.image.folder import format_secrets_warning, read_folder
from kfjob.image.layers import MTIME, pack_layer


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def paths(root: Path) -> list[str]:
    return [entry.path for entry in read_folder(root).entries]


@pytest.fixture
def src(tmp_path: Path) -> Path:
    write(
        tmp_path / "src", **{"train.py": "print(1)", "lib__a.py": "a", "lib__deep__b.py": "", "lib-old.py": "x", "run.sh": "#!"}
    )
    (tmp_path / "src" / "run.sh").chmod(0o755)
    (tmp_path / "src" / "link.py").symlink_to("lib/a.py")
    return tmp_path / "src"


def test_folder_precedes_its_contents(src: Path):
    assert paths(src) == ["lib", "lib/a.py", "lib/deep", "lib/deep/b.py", "lib-old.py", "link.py", "run.sh", "train.py"]


def test_layer_contains_the_folder(src: Path):
    with pack_layer(read_folder(src), "/workspace") as layer:
        body = layer.blob.file.read_bytes()
        with tarfile.open(layer.blob.file) as tar:
            members = {member.name: member for member in tar}
            content = tar.extractfile("workspace/train.py")
            assert content
            assert content.read() == b"print(1)"
    assert not layer.blob.file.exists()
    assert next(iter(members)) == "workspace/lib"  # and so nothing is said of /workspace itself, nor of /
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members.values()} == {(0, 0, "", "", MTIME)}
    assert members["workspace/run.sh"].mode == 0o755
    assert members["workspace/train.py"].mode == 0o644
    assert members["workspace/link.py"].linkname == "lib/a.py"
    assert layer.blob.digest == f"sha256:{hashlib.sha256(body).hexdigest()}"
    assert layer.diff_id == f"sha256:{hashlib.sha256(gzip.decompress(body)).hexdigest()}"
    assert layer.blob.size == len(body)


def test_same_files_give_the_same_bytes(src: Path, tmp_path: Path):
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(src, copy, symlinks=True)
    for number, path in enumerate(sorted(copy.rglob("*"))):
        os.utime(path, (number, number), follow_symlinks=False)
    (copy / "train.py").chmod(0o600)
    with pack_layer(read_folder(src), "/w") as first, pack_layer(read_folder(copy), "w/") as second:
        assert (first.blob.digest, first.diff_id) == (second.blob.digest, second.diff_id)
    assert read_folder(src).compute_digest() == read_folder(copy).compute_digest()


@pytest.mark.parametrize("change", ["content", "name", "rights", "target", "place"])
def test_changed_file_gives_other_bytes(src: Path, change: str):
    def state(into: str = "/w") -> tuple[str, str]:
        folder = read_folder(src)
        with pack_layer(folder, into) as layer:
            return layer.diff_id, folder.compute_digest()

    before = state()
    match change:
        case "content":
            (src / "train.py").write_text("print(2)")
        case "name":
            (src / "train.py").rename(src / "train2.py")
        case "rights":
            (src / "train.py").chmod(0o755)
        case "target":
            (src / "link.py").unlink()
            (src / "link.py").symlink_to("train.py")
    after = state("/elsewhere" if change == "place" else "/w")
    assert after[0] != before[0]
    assert (after[1] != before[1]) == (change != "place")


def test_empty_folder_and_unusual_names(tmp_path: Path):
    src = tmp_path / "src"
    src.mkdir()
    with pack_layer(read_folder(src), "/w") as layer, tarfile.open(layer.blob.file) as tar:
        assert tar.getnames() == []
    names = ["a" * 200, "ä.py", "with space", "n\nl", os.fsdecode(b"\xff\xfe")]
    for name in names:
        (src / name).write_text("x")
    with pack_layer(read_folder(src), "/w") as layer, tarfile.open(layer.blob.file) as tar:
        assert sorted(tar.getnames()) == sorted(f"w/{name}" for name in names)


def test_dockerignore_excludes_files(src: Path):
    (src / ".dockerignore").write_text("*\n!lib/deep\n!train.py\n")
    assert paths(src) == ["lib", "lib/deep", "lib/deep/b.py", "train.py"]


def test_default_patterns_without_a_dockerignore(src: Path):
    before = paths(src)
    write(src, **{".git__HEAD": "", ".venv__bin__python": "", ".ruff_cache__x": ""})
    (src / "lib" / "__pycache__").mkdir()
    (src / "lib" / "__pycache__" / "a.pyc").touch()
    assert paths(src) == before


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "../src/train.py", "lib/../../x"])
def test_link_out_of_the_folder_is_refused(src: Path, target: str):
    (src / "bad").symlink_to(target)
    with pytest.raises(Refused, match="leads out of the folder") as caught:
        read_folder(src)
    assert target in (caught.value.cause or "")
    (src / ".dockerignore").write_text("bad")
    assert "bad" not in paths(src)


def test_indirect_link_out_of_the_folder_is_refused(tmp_path: Path):
    src = write(tmp_path / "src", a__b__c="x")
    (src / "deep").symlink_to("a/b")
    (src / "bad").symlink_to("deep/../../../outside")  # by its text it stays within
    with pytest.raises(Refused, match="leads out"):
        read_folder(src)


def test_links_within_the_folder_are_kept(tmp_path: Path):
    src = write(tmp_path / "src", a__b="x")
    (src / "a" / "up").symlink_to("../a/b")
    (src / "self").symlink_to("self")
    (src / "nowhere").symlink_to("not/there")
    (src / "folder").symlink_to("a")
    assert paths(src) == ["a", "a/b", "a/up", "folder", "nowhere", "self"]


def test_fifo_is_an_error(src: Path):
    os.mkfifo(src / "pipe")
    with pytest.raises(UsageError, match=r"pipe.* is neither"):
        read_folder(src)


def test_missing_folder_is_an_error(tmp_path: Path):
    write(tmp_path, file="x")
    for name in ("file", "absent"):
        with pytest.raises(NotFound, match="is not a folder"):
            read_folder(tmp_path / name)


@pytest.mark.parametrize("text", ["longer than before", "x", "", "print(2)"])
def test_file_change_during_read_is_refused(src: Path, text: str):
    folder = read_folder(src)
    (src / "train.py").write_text(text)
    with pytest.raises(Refused, match=r"train\.py.* changed while"), pack_layer(folder, "/w"):
        pass
    with pytest.raises(Refused, match="changed while"):
        folder.compute_digest()


def test_file_growth_during_read_is_refused(src: Path):
    big = src / "big"
    big.write_bytes(b"x" * (3 * 1024 * 1024))
    (entry,) = [first for first in read_folder(src).entries if first.path == "big"]
    pieces = entry.read_pieces()
    next(pieces)
    with big.open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(Refused, match="changed while"):
        list(pieces)


def test_deleted_file_is_refused(src: Path):
    folder = read_folder(src)
    (src / "train.py").unlink()
    with pytest.raises(Refused, match="cannot be read"), pack_layer(folder, "/w"):
        pass


def test_whiteout_name_is_refused(src: Path):
    write(src, **{".wh.train.py": ""})
    with pytest.raises(Refused, match="would delete"), pack_layer(read_folder(src), "/w"):
        pass


SECRET = {".env": "A=b", ".env.production": "", "tls__server.key": "", "id_rsa": "", ".aws__credentials": "", "kubeconfig": ""}
HARMLESS = {".env.example": "", ".env.template": "", "id_rsa.pub": "", "keys.py": "", "environment": "", "a__key.txt": "none"}


@pytest.mark.parametrize("name", SECRET)
def test_secret_files_are_a_warning(tmp_path: Path, name: str):
    folder = read_folder(write(tmp_path / "src", **{name: SECRET[name]}))
    assert folder.secret_paths == (name.replace("__", "/"),)
    warning = format_secrets_warning(folder)
    assert warning
    assert f"`{name.replace('__', '/')}` may hold secrets" in warning


def test_private_key_is_detected_by_its_content(tmp_path: Path):
    folder = read_folder(write(tmp_path / "src", **HARMLESS))
    assert folder.secret_paths == ()
    assert format_secrets_warning(folder) is None
    write(tmp_path / "src", notes="-----BEGIN OPENSSH PRIVATE KEY-----\nabc")
    assert read_folder(tmp_path / "src").secret_paths == ("notes",)


def test_long_list_of_secrets_is_shortened(tmp_path: Path):
    folder = read_folder(write(tmp_path / "src", **{f"{n}.pem": "" for n in range(8)}))
    assert "and 3 more" in (format_secrets_warning(folder) or "")


def test_socket_is_an_error(tmp_path: Path):
    (tmp_path / "s").mkdir()
    with socket.socket(socket.AF_UNIX) as first:
        first.bind(str(tmp_path / "s" / "x"))
        with pytest.raises(UsageError, match="neither"):
            read_folder(tmp_path / "s")
