"""A checkpoint is data: none of its files can run code, even if a manifest with matching checksums names them."""

from __future__ import annotations

import ast
import io
import json
import os
import pickle
import shutil
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path, PosixPath, PurePath, PurePosixPath
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem

import kfjob
from kfjob.base.errors import KfjobError
from kfjob.trainer import checkpoint
from kfjob.trainer.dcp_reader import _DataPlanner, load_tensors, read_metadata
from kfjob.trainer.export import main
from kfjob.trainer.manifest import Manifest, describe_file
from kfjob.trainer.storage import open_storage


class RunsCode:
    """Creates a folder when it is unpickled, through a function."""

    def __init__(self, folder, kind) -> None:
        self.folder, self.kind = folder, kind

    def __reduce__(self) -> tuple[object, ...]:
        calls = {
            "os.mkdir": (os.mkdir, (str(self.folder),)),
            "eval": (eval, (f"__import__('os').mkdir({str(self.folder)!r})",)),
            "getattr": (getattr, (Path(self.folder), "mkdir")),
            "torch.load": (torch.load, (str(self.folder),)),
        }
        return calls[self.kind]


KINDS = ["os.mkdir", "eval", "getattr", "torch.load"]


@pytest.fixture(scope="module")
def trained(workers, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    workers.run("run_training", {"spec": tiny | {"strategy": "none", "checkpoint_dir": str(folder), "max_steps": 1}})
    return folder


@pytest.fixture
def copy(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def sign(folder):
    """Write a manifest with the sizes and checksums of the present files, as an attacker would."""
    manifest = Manifest.read(folder)
    (folder / "manifest.json").unlink()
    files = {path.name: describe_file(path) for path in folder.iterdir()}
    replace(manifest, files=files).write(folder)


def find_source(copy):
    (source,) = checkpoint.list_checkpoints(open_storage(str(copy)))
    return source


def load_metadata(copy):
    return pickle.loads((copy / "step-000001" / ".metadata").read_bytes())  # noqa: S301 -- of the fixture


def write_metadata(copy, metadata):
    """Replace the metadata by an object, or by the bytes of one, sign the checkpoint, and return it."""
    content = metadata if isinstance(metadata, bytes) else pickle.dumps(metadata)
    (copy / "step-000001" / ".metadata").write_bytes(content)
    sign(copy / "step-000001")
    return find_source(copy)


def poison_metadata(copy, kind, target, *, nested):
    hostile = RunsCode(target, kind)
    if nested:
        metadata = load_metadata(copy)
        metadata.planner_data = {**metadata.planner_data, "more": hostile}
        hostile = metadata
    return write_metadata(copy, hostile)


def poison_optimizer(copy, kind, target):
    """Replace the learning rate in the shard by a value that runs code."""
    metadata = load_metadata(copy)
    index = next(index for index in metadata.storage_data if index.fqn.startswith("optimizer.param_groups"))
    buffer = io.BytesIO()
    torch.save(RunsCode(target, kind), buffer)
    shard = copy / "step-000001" / metadata.storage_data[index].relative_path
    metadata.storage_data[index].offset = shard.stat().st_size
    metadata.storage_data[index].length = len(buffer.getvalue())
    shard.write_bytes(shard.read_bytes() + buffer.getvalue())
    write_metadata(copy, metadata)


class OldPickler(pickle.Pickler):
    """Pickles members of an enum as Python 3.11.0 to 3.11.3 does: with `getattr` and their name."""

    def reducer_override(self, value: Any) -> Any:
        return (getattr, (type(value), value.name)) if isinstance(value, Enum) else NotImplemented


def test_metadata_of_an_older_python_is_read(copy):
    buffer = io.BytesIO()
    OldPickler(buffer).dump(load_metadata(copy))
    assert b"getattr" in buffer.getvalue()
    expected = read_metadata(find_source(copy))
    assert read_metadata(write_metadata(copy, buffer.getvalue())) == expected


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in metadata"])
@pytest.mark.parametrize("kind", KINDS)
def test_metadata_cannot_run_code(copy, tmp_path, capsys, kind, nested):
    target = tmp_path / "created"
    source = poison_metadata(copy, kind, target, nested=nested)
    with pytest.raises(KfjobError, match="holds more than data"):
        read_metadata(source)
    assert main([str(copy), str(tmp_path / "exported")]) == 1
    assert "which torch's DCP does not write\nhint: `--trust-checkpoint` loads it" in capsys.readouterr().err
    assert not target.exists()


def name(module, member):
    """Return the opcodes that push a global."""
    return b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, member)) + b"\x93"


TEXT = b"\x8c\x07/victim"
PATH = name("pathlib", "PosixPath")
METADATA = name("torch.distributed.checkpoint.metadata", "Metadata")
STORAGE = name("torch.distributed.checkpoint.filesystem", "_StorageInfo")
SIZE = name("torch", "Size")
MEMORY_FORMAT = name("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING")
SLOT_STATE = b"N}\x8c\x04_str" + TEXT + b"s\x86b"
HOSTILE_OPCODES = {
    "slots of a class": PATH + SLOT_STATE,
    "slots of a dataclass": METADATA + SLOT_STATE,
    "slots of a new object": METADATA + b")\x81" + SLOT_STATE,
    "class of a new object": METADATA + b")\x81N}\x8c\x09__class__" + STORAGE + b"s\x86b",
    "unknown field": METADATA + b")\x81}\x8c\x09__class__" + STORAGE + b"sb",
    "attributes of a path": PATH + TEXT + b"\x85R" + SLOT_STATE,
    "attributes of a member": name("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING")
    + b"K\x00\x85R"
    + SLOT_STATE,
    "attributes of a number type": name("torch", "float32") + SLOT_STATE,
    "new enum": MEMORY_FORMAT + TEXT + b"]\x86R",
    "other getattr": name("builtins", "getattr") + PATH + TEXT + b"\x86R",
    "dotted name": name("pathlib", "PosixPath.__init__"),
    "item of a class": PATH + TEXT + b"Ns",
    "items of a class": PATH + b"(" + TEXT + b"Nu",
    "append to a class": PATH + b"Na",
    "append to a size": SIZE + b")\x85R(Ne",
    "call of a class": METADATA + b")R",
    "new object with arguments": METADATA + TEXT + b"\x85\x81",
    "new path": PATH + b")\x81",
    # some of the opcodes that are not in the list
    "NEWOBJ_EX": METADATA + b")}\x92",
    "EXT1": b"\x82\x01",
    "PERSID": b"Pvictim\n",
    "INST": b"(ipathlib\nPosixPath\n",
    "deep key": b"}" + b")" + b"\x85" * 300_000 + b"Ns",
    "size that is a name": STORAGE + b")\x81}\x8c\x0drelative_pathNsb",
    "other name of a file": STORAGE + b")\x81}\x8c\x0drelative_path" + PATH + b")Rsb",
}


KINDS_OF_OBJECTS: list[Any] = [PosixPath, PurePosixPath, PurePath, torch.Size, dcp.Metadata, dcp._MEM_FORMAT_ENCODING]


def fingerprint_classes():
    return [{name: id(value) for name, value in vars(kind).items()} for kind in KINDS_OF_OBJECTS]


@pytest.mark.parametrize("opcodes", HOSTILE_OPCODES.values(), ids=HOSTILE_OPCODES)
def test_metadata_changes_no_object_that_it_did_not_create(copy, opcodes):
    content = (copy / "step-000001" / ".metadata").read_bytes()
    assert content[:2] == b"\x80\x04"
    source = write_metadata(copy, content[:2] + opcodes + content[2:])
    before = fingerprint_classes()
    try:
        with pytest.raises(KfjobError, match="holds more than data"):
            read_metadata(source)
    finally:
        changed = fingerprint_classes() != before
        for kind in KINDS_OF_OBJECTS:  # so that pytest's own paths stay intact
            if isinstance(vars(kind).get("_str"), str):
                del kind._str
    assert not changed


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_metadata_of_every_protocol_is_read(copy, protocol):
    metadata = load_metadata(copy)
    next(iter(metadata.storage_data.values())).offset = 2**40
    loaded = read_metadata(write_metadata(copy, pickle.dumps(metadata, protocol)))
    assert loaded.storage_data == metadata.storage_data
    assert loaded.state_dict_metadata == metadata.state_dict_metadata
    assert loaded.planner_data == metadata.planner_data


@pytest.mark.parametrize("kind", ["mapping", "tensor"])
def test_setting_with_attributes_is_refused(kind):
    """DCP unpickles a copy of the setting without restrictions, and the attributes decide what the copy is."""
    value: Any = OrderedDict() if kind == "mapping" else torch.zeros(1)
    value.__dict__["note"] = "another value"
    buffer = io.BytesIO()
    torch.save([{"lr": value}], buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=True)[0]["lr"].note == "another value"
    with pytest.raises(pickle.UnpicklingError, match="attributes of a"):
        load_setting(buffer)


@pytest.mark.parametrize("kind", ["itself", "another list twice"])
def test_setting_without_end_is_refused(kind):
    value: list[Any] = [1]
    if kind == "itself":
        value.append(value)
    else:
        for _ in range(60):
            value = [value, value]
    buffer = io.BytesIO()
    torch.save(value, buffer)
    with pytest.raises(pickle.UnpicklingError, match="more than 1,000,000 parts"):
        load_setting(buffer)


def load_setting(buffer: io.BytesIO) -> Any:
    """Return a setting as DCP reads it from a checkpoint."""
    buffer.seek(0)
    planner = _DataPlanner(flatten_state_dict=False)
    planner.state_dict = {}
    index, size = MetadataIndex("a"), torch.Size([0])
    planner.load_bytes(ReadItem(LoadItemType.BYTE_IO, index, size, index, size, size), buffer)
    return planner.state_dict["a"]


@pytest.mark.parametrize("poison", ["metadata", "optimizer"])
def test_resume_cannot_run_code(workers, tiny, copy, tmp_path, poison):
    target = tmp_path / "created"
    if poison == "metadata":
        poison_metadata(copy, "os.mkdir", target, nested=True)
    else:
        poison_optimizer(copy, "os.mkdir", target)
    spec = tiny | {"checkpoint_dir": str(copy), "strategy": "none"}
    messages = workers.run("error_of_training", {"spec": spec | {"strategy": "fsdp", "micro_batch_size": 2}}, world_size=2)
    messages += workers.run("error_of_training", {"spec": spec})
    expected = "holds more than data, and loading it could run code\n  --> resume"
    assert [message for message in messages if expected not in message] == []
    assert not target.exists()
    # with the user's trust the code runs, so the cases above have tested the restriction
    with suppress(AssertionError):  # the run may fail, because the code returns no value of the right type
        workers.run("run_training", {"spec": spec | {"trust_checkpoint": True}})
    assert target.exists()


def test_metadata_names_files_of_its_checkpoint_only(copy, tmp_path):
    metadata = load_metadata(copy)
    torch.save(torch.zeros(3), tmp_path / "outside")
    next(iter(metadata.storage_data.values())).relative_path = str(tmp_path / "outside")
    with pytest.raises(KfjobError, match="outside`, which its manifest lacks"):
        read_metadata(write_metadata(copy, metadata))


@pytest.mark.parametrize("missing", ["chunks", "data"])
def test_tensor_without_all_of_its_data_is_refused(copy, tmp_path, capsys, missing):
    """DCP would leave it as it was in memory."""
    metadata = load_metadata(copy)
    name = next(name for name in metadata.state_dict_metadata if name.startswith("model."))
    if missing == "chunks":
        metadata.state_dict_metadata[name].chunks = []
    metadata.storage_data = {index: entry for index, entry in metadata.storage_data.items() if index.fqn != name}
    write_metadata(copy, metadata)
    assert main([str(copy), str(tmp_path / "model")]) == 1
    assert f"has not all data of `{name}`" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


class PathWithTwoNames:
    """Prints the name `text` and opens `path`, when it is unpickled as a path."""

    def __init__(self, path, text) -> None:
        self.path, self.text = path, text

    def __reduce__(self) -> tuple[object, ...]:
        return PosixPath, (str(self.path),), (None, {"_str": self.text})


@pytest.mark.parametrize("trusted", [False, True])
def test_path_object_cannot_open_another_file_than_it_names(copy, tmp_path, trusted):
    metadata = load_metadata(copy)
    for entry in metadata.storage_data.values():
        entry.relative_path = PathWithTwoNames(tmp_path / "outside", entry.relative_path)
    source = write_metadata(copy, metadata)
    with pytest.raises(KfjobError, match=r"no readable \.metadata" if trusted else "holds more than data"):
        read_metadata(source, trusted=trusted)


@pytest.mark.parametrize("pattern", ["*.distcp", ".metadata"])
def test_file_that_links_out_of_the_checkpoint_is_refused(copy, tmp_path, capsys, pattern):
    shard = next((copy / "step-000001").glob(pattern))
    shard.symlink_to(shard.rename(tmp_path / "outside"))
    sign(copy / "step-000001")
    source = find_source(copy)
    outside = "is a link to a file outside the checkpoint"
    assert outside in (source.storage.find_damage(source.name, source.manifest) or "")
    with pytest.raises(KfjobError, match=outside):
        load_tensors(source, {}, distributed=False)
    assert main([str(copy), str(tmp_path / "exported")]) == 1
    assert outside in capsys.readouterr().err


@pytest.mark.parametrize("problem", ["not listed", "not regular", "too large"])
def test_metadata_is_a_listed_regular_file_of_limited_size(copy, monkeypatch, problem):
    folder = copy / "step-000001"
    if problem == "not listed":
        manifest = Manifest.read(folder)
        replace(manifest, files={name: facts for name, facts in manifest.files.items() if name != ".metadata"}).write(folder)
    elif problem == "too large":
        monkeypatch.setattr("kfjob.trainer.storage.folder.MAX_CONTENT", 100, raising=False)
    else:
        (folder / ".metadata").unlink()
        os.mkfifo(folder / ".metadata")
    source = find_source(copy)
    expected = {
        "not listed": r"does not list \.metadata",
        "not regular": r"`\.metadata` is not a regular file",
        "too large": r"`\.metadata` is larger than",
    }
    with pytest.raises(KfjobError, match=expected[problem]):
        read_metadata(source)


@pytest.mark.parametrize(
    "text", ['{"a":' + "[" * 200_000, '{"a":' + "[" * 200_000 + "]" * 200_000 + "}"], ids=["open", "closed"]
)
def test_deeply_nested_manifest_is_one_error(text):
    with pytest.raises(KfjobError, match="no readable manifest"):
        Manifest.from_json(text, "run/step-000001")


@pytest.mark.parametrize(
    "change",
    [
        {"step": 10**30},
        {"step": -1},
        {"parameters": {"a": [10**12] * 4}},
        {"parameters": {"a": [10**6] * 2}},
        {"parameters": {"a": [-1]}},
        {"global_batch": 0},
        {"data_position": {"next": -1}},
        {"data_position": {"next": "1"}},
        {"data_position": {"next": 8, "lanes": []}},
        {"plateau": {"factor": "0.1"}},
        {"plateau": {"factor": 0.1, "best": 1.0, "borne": -1}},
        {"files": {"a": {}}},
        {"files": {"a": {"bytes": "1", "sha256": ""}}},
        {"files": {"": {"bytes": 1, "sha256": ""}}},
        {"files": {"a\0": {"bytes": 1, "sha256": ""}}},
        {"files": {"../a": {"bytes": 1, "sha256": ""}}},
        {"shards": ".."},
    ],
    ids=str,
)
def test_manifest_with_an_impossible_number_is_one_error(copy, change):
    manifest = replace(Manifest.read(copy / "step-000001"), **change)
    with pytest.raises(KfjobError, match="is not a manifest"):
        Manifest.from_json(manifest.to_json(), "run/step-000001")


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x04", b"\x80\x04K\x01.", b"garbage", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f."]
)
def test_unreadable_metadata_is_one_error(copy, content):
    with pytest.raises(KfjobError, match=r"no readable \.metadata"):
        read_metadata(write_metadata(copy, content))


def test_every_loader_of_foreign_files_is_restricted():
    """No call in the package may run code of a checkpoint, a model or a data set."""
    required = {
        "from_pretrained": ("trust_remote_code", False),
        "from_config": ("trust_remote_code", False),
        "load_dataset": ("trust_remote_code", False),
        "torch.load": ("weights_only", True),
    }
    calls = []
    for path in sorted(Path(kfjob.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                calls += [(path, node, rule) for ending, rule in required.items() if f".{name}".endswith(f".{ending}")]
    assert len(calls) >= 4
    for path, node, (keyword, value) in calls:
        given = {entry.arg: ast.unparse(entry.value) for entry in node.keywords}
        assert given.get(keyword) == str(value), f"{path}:{node.lineno}: {json.dumps(given)}"
