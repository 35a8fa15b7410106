"""Folders: reading and packing."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kfjob.base.errors import NotFound, Refused, UsageError
from kfjob.image.folder import format_secrets_warning, read_folder, refuse_secrets
from kfjob.image.layers import MTIME, pack_layer


def make_files(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def paths(root: Path) -> list[str]:
    return [entry.path for entry in read_folder(root).entries]


@pytest.fixture
def src(tmp_path: Path) -> Path:
    files = {"train.py": "print(1)", "lib/a.py": "a", "lib/deep/b.py": "", "lib-old.py": "x", "run.sh": "#!"}
    make_files(tmp_path / "src", files)
    (tmp_path / "src" / "run.sh").chmod(0o755)
    (tmp_path / "src" / "link.py").symlink_to("lib/a.py")
    return tmp_path / "src"


def test_a_report_of_kfjob_is_no_code_unless_the_user_includes_it(src: Path):
    before = read_folder(src).compute_digest()
    make_files(src, {"fit-report.html": "<html>"})
    assert read_folder(src).compute_digest() == before
    (src / ".dockerignore").write_text("!fit-report.html")
    assert "fit-report.html" in paths(src)


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
    make_files(src, dict.fromkeys([".git/HEAD", ".venv/bin/python", ".ruff_cache/x", "lib/__pycache__/a.pyc"], ""))
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
    src = make_files(tmp_path / "src", {"a/b/c": "x"})
    (src / "deep").symlink_to("a/b")
    (src / "bad").symlink_to("deep/../../../outside")  # by its text it stays within
    with pytest.raises(Refused, match="leads out"):
        read_folder(src)


def test_links_within_the_folder_are_kept(tmp_path: Path):
    src = make_files(tmp_path / "src", {"a/b": "x"})
    (src / "a" / "up").symlink_to("../a/b")
    (src / "self").symlink_to("self")
    (src / "nowhere").symlink_to("not/there")
    (src / "folder").symlink_to("a")
    assert paths(src) == ["a", "a/b", "a/up", "folder", "nowhere", "self"]


SPECIAL: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "device": lambda path: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5)),  # /dev/zero
}


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL.keys())
def test_special_file_is_an_error(src: Path, make: Callable[[Path], object]):
    (src / "inner").mkdir()
    make(src / "inner" / "special")
    with pytest.raises(UsageError, match=r"inner/special` is neither") as caught:
        read_folder(src)
    assert caught.value.hint == "exclude it in `.dockerignore`"
    (src / ".dockerignore").write_text("inner/special\n")
    assert "inner/special" not in paths(src)


def test_missing_folder_is_an_error(tmp_path: Path):
    make_files(tmp_path, {"file": "x"})
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
    make_files(src, {".wh.train.py": ""})
    with pytest.raises(Refused, match="would delete"), pack_layer(read_folder(src), "/w"):
        pass


HUB_TOKEN = "hf_" + "aB3" * 12
DOCKER = '{"auths": {"registry.example": {"auth": "YTpi"}}}'
GOOGLE = '{"type": "x", "private_key": "-----BEGIN PRIVATE KEY-----"}'
KUBE = "apiVersion: v1\nusers:\n- name: a\ncurrent-context: b\n"
SECRET = {
    **dict.fromkeys(
        [".env", ".ENV", ".envrc", ".env.production", ".env.local", "a/b/.env_prod", "secrets.yaml", "credentials.json"], "A=b"
    ),
    **dict.fromkeys(["tls/server.key", "server.pem", "id_rsa", "keys/id_ed25519", "a.p12", "store.jks", "k.ppk"], ""),
    **dict.fromkeys(
        [".netrc", "_netrc", ".pypirc", ".npmrc", ".git-credentials", "x/.pgpass", ".vault-token", ".bash_history"], ""
    ),
    **dict.fromkeys(["kubeconfig", "prod.kubeconfig", "service-account-x.json", "my_service_account.json"], ""),
    **dict.fromkeys(["infra/terraform.tfstate", "a.tfstate.backup", "prod.tfvars", "application_default_credentials.json"], ""),
    **dict.fromkeys(["home/.cache/huggingface/token", ".huggingface/token", "kaggle.json"], "x"),
    "notes": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
    "both.crt": "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n",
    "my-token.txt": HUB_TOKEN + "\n",
    "config.json": DOCKER,
    "sa.json": GOOGLE,
    "cluster.yaml": KUBE,
}
IN_FOLDERS = [".aws/credentials", ".aws/sso/cache/1.json", "x/.kube/config", ".ssh/known_hosts", "third_party/lib/.git/config"]
IN_FOLDERS += [".config/gcloud/a.db", ".docker/config.json", ".azure/x", ".config/gh/hosts.yml", ".gnupg/pubring.kbx"]
HARMLESS = {
    **dict.fromkeys(
        [".env.example", ".env.template", "id_rsa.pub", "keys.py", "environment", "a/key.txt", "secret.py", "env.py"], "none"
    ),
    "ca.pem": "-----BEGIN CERTIFICATE-----\nabc\n",
    "config.json": '{"hidden_size": 8}',
    "train.py": f"TOKEN = '{HUB_TOKEN}'",
    "test_keys.py": 'KEY = "-----BEGIN PRIVATE KEY-----"',
    "tokenizer.json": "{}",
    "kubeconfig.py": "none",
    ".gitignore": "",
    "sub/.git": "gitdir: ../x",
}


@pytest.mark.parametrize("path", SECRET)
def test_secret_file_is_refused_unless_it_is_included(tmp_path: Path, path: str):
    folder = read_folder(make_files(tmp_path / "src", {path: SECRET[path], "train.py": ""}))
    assert folder.secret_paths == (path,)
    with pytest.raises(Refused) as caught:
        refuse_secrets(folder, ["other"])
    assert f"holds files that look like secrets: `{path}`" in caught.value.title
    assert caught.value.hint == f"exclude them in `.dockerignore`, or add them with `--include {path}`"
    refuse_secrets(folder, [path])
    assert f"`{path}` may hold secrets" in (format_secrets_warning(folder) or "")


@pytest.mark.parametrize("path", IN_FOLDERS)
def test_secret_folder_is_named_once(tmp_path: Path, path: str):
    parent = path.rpartition("/")[0]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / ".dockerignore").write_text("nothing\n")  # instead of the default patterns
    folder = read_folder(make_files(tmp_path / "src", {path: "", f"{parent}/other": ""}))
    (secret,) = folder.secret_paths
    assert path.startswith(f"{secret}/")
    with pytest.raises(Refused, match=secret):
        refuse_secrets(folder, [path])  # not the other file
    refuse_secrets(folder, [secret])


def test_harmless_files_are_no_secrets(tmp_path: Path):
    folder = read_folder(make_files(tmp_path / "src", HARMLESS))
    assert folder.secret_paths == ()
    assert format_secrets_warning(folder) is None
    refuse_secrets(folder, [])


def test_ignored_secret_is_not_refused(tmp_path: Path):
    folder = read_folder(make_files(tmp_path / "src", {".env": "A=b", ".dockerignore": "**/.env", "a/.git/config": ""}))
    with pytest.raises(Refused, match=r"a/\.git"):
        refuse_secrets(folder, [])
    (tmp_path / "src" / ".dockerignore").unlink()
    (tmp_path / "src" / ".env").unlink()
    refuse_secrets(read_folder(tmp_path / "src"), [])  # by default every `.git` is left out


def test_long_list_of_secrets_is_shortened(tmp_path: Path):
    folder = read_folder(make_files(tmp_path / "src", {f"{n}.pem": "" for n in range(8)}))
    assert "and 3 more" in (format_secrets_warning(folder) or "")
    with pytest.raises(Refused, match="and 3 more"):
        refuse_secrets(folder, [])


@pytest.mark.parametrize("folders", [1, 5])
def test_folder_with_too_many_files_is_one_error_and_is_not_listed_to_its_end(tmp_path: Path, monkeypatch, folders: int):
    monkeypatch.setattr("kfjob.image.folder.MAX_ENTRIES", 20)
    for index in range(folders):
        (tmp_path / f"d{index}").mkdir()
        for name in range(50 // folders):
            (tmp_path / f"d{index}" / f"{name}").touch()
    listed = []
    monkeypatch.setattr("kfjob.image.folder.Entry", lambda **fields: listed.append(fields))
    with pytest.raises(UsageError, match="more than 20 files and folders"):
        read_folder(tmp_path)
    assert len(listed) == 21
