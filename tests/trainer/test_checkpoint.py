from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from kfjob.base.errors import KfjobError
from kfjob.trainer import checkpoint
from kfjob.trainer.export import export
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.pins import pin
from kfjob.trainer.process_identity import identify_process
from kfjob.trainer.storage import Checkpoint, open_storage, split_location
from tests.trainer.conftest import save_tiny_llama


@pytest.fixture(scope="module")
def two_checkpoints(workers, tiny, tmp_path_factory):
    """A folder with step-000003 and step-000006 of a run on two ranks."""
    folder = tmp_path_factory.mktemp("checkpoints") / "run"
    spec = tiny | {"strategy": "fsdp", "checkpoint_dir": str(folder), "checkpoint_every": 3}
    workers.run("run_training", {"spec": spec}, world_size=2)
    return folder


@pytest.fixture
def copy(two_checkpoints, tmp_path):
    return shutil.copytree(two_checkpoints, tmp_path / "run")


def find_newest(workers, folder, *, resume="auto", world_size=2):
    names = workers.run("find_newest_checkpoint", {"folder": str(folder), "resume": resume}, world_size=world_size)
    assert len(set(names)) == 1
    return names[0]


def flip_bit(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def edit_manifest(folder):
    body = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(body | {"step": 7}))


DAMAGE = {
    "a byte of the first rank's shard": lambda folder: flip_bit(folder / "__0_0.distcp", 5000),
    "a byte of the second rank's shard": lambda folder: flip_bit(folder / "__1_0.distcp", -1),
    "a byte of the metadata": lambda folder: flip_bit(folder / ".metadata", 100),
    "a truncated shard": lambda folder: os.truncate(folder / "__1_0.distcp", 100),
    "an empty shard": lambda folder: os.truncate(folder / "__0_0.distcp", 0),
    "a missing shard": lambda folder: (folder / "__1_0.distcp").unlink(),
    "missing metadata": lambda folder: (folder / ".metadata").unlink(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "half a manifest": lambda folder: os.truncate(folder / "manifest.json", 200),
    "an edited manifest": edit_manifest,
    "a byte of the manifest": lambda folder: flip_bit(folder / "manifest.json", 10),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoint_is_skipped(workers, copy, damage):
    DAMAGE[damage](copy / "step-000006")
    assert find_newest(workers, copy) == "step-000003"
    assert find_newest(workers, copy) == "step-000003"


def test_only_damaged_checkpoints_mean_a_fresh_start(workers, copy, tmp_path):
    for folder in copy.glob("*step*"):
        flip_bit(folder / "__0_0.distcp", 5000)
    assert find_newest(workers, copy) is None
    assert find_newest(workers, tmp_path / "not-there") is None


def test_similar_names_are_not_checkpoints(workers, copy):
    shutil.copytree(copy / "step-000006", copy / ".staging-step-000009-abcd")
    shutil.copytree(copy / "step-000006", copy / ".discarded-step-000009-abcd")
    shutil.copytree(copy / "step-000006", copy / "step-000009.old")
    (copy / "step-000010").mkdir()
    (copy / "step-000011").write_text("a file")
    assert find_newest(workers, copy) == "step-000006"


@pytest.mark.parametrize("damage", ["a byte of the second rank's shard", "half a manifest"])
def test_damaged_checkpoint_is_saved_again(workers, tiny, copy, damage):
    """The second save of step 6 must not mix with files of the first."""
    DAMAGE[damage](copy / "step-000006")
    manifest = (copy / "step-000006" / "manifest.json").read_bytes()
    (copy / "step-000006" / "__7_0.distcp").write_bytes(b"left over")
    spec = tiny | {"strategy": "fsdp", "checkpoint_dir": str(copy), "checkpoint_every": 3}
    results = workers.run("run_training", {"spec": spec}, world_size=2)
    assert list(results[0]["losses"]) == ["4", "5", "6"]
    assert find_newest(workers, copy) == "step-000006"
    files = [".metadata", "__0_0.distcp", "__1_0.distcp", "manifest.json"]
    assert sorted(path.name for path in (copy / "step-000006").iterdir()) == files
    (aside,) = copy.glob("damaged-step-000006-*")
    assert (aside / "__7_0.distcp").exists()
    assert (aside / "manifest.json").read_bytes() == manifest


def test_retention_does_not_count_damaged_checkpoints(workers, tiny, copy):
    flip_bit(copy / "step-000006" / "__1_0.distcp", 5000)
    spec = tiny | {"strategy": "none", "micro_batch_size": 8, "checkpoint_dir": str(copy), "keep_last": 1}
    workers.run("run_training", {"spec": spec, "stop_after": 2})
    names = sorted(path.name for path in copy.glob("*step*"))
    assert names[0].startswith("damaged-step-000006-")
    assert names[1:] == ["step-000005"]
    assert find_newest(workers, copy) == "step-000005"


def test_start_removes_the_files_of_killed_writers(workers, tiny, copy):
    pin_file = ".pin-step-000001-x"
    for name in (".temporary-lease.json-1-2", ".probe-1-0", ".deleting-step-000001", pin_file):
        (copy / name).write_text("")
    for name in (".staging-step-000009-abcd", ".discarded-step-000001-abcd"):
        (copy / name).mkdir()
    workers.run("run_training", {"spec": tiny | {"strategy": "none", "checkpoint_dir": str(copy), "max_steps": 7}})
    names = {pin_file, "outcome.json", "step-000003", "step-000006", "step-000007"}
    assert {path.name for path in copy.iterdir()} == names


def test_resume_from_a_folder_uses_its_newest_valid_checkpoint(workers, tiny, copy, tmp_path):
    """The folder belongs to another run, so a damaged checkpoint in it is not moved."""
    flip_bit(copy / "step-000006" / "__1_0.distcp", 5000)
    spec = tiny | {"strategy": "none", "micro_batch_size": 8, "checkpoint_dir": str(tmp_path / "new"), "resume": str(copy)}
    (result,) = workers.run("run_training", {"spec": spec})
    assert list(result["losses"]) == ["4", "5", "6"]
    assert sorted(path.name for path in copy.iterdir() if path.is_dir()) == ["step-000003", "step-000006"]
    assert (
        find_newest(workers, copy, resume=f"{copy}/", world_size=1) == "step-000003"
    )  # its own folder: like `auto`, which moves a damaged one
    assert not (copy / "step-000006").exists()
    flip_bit(copy / "step-000003" / "__0_0.distcp", 5000)
    (message,) = workers.run("error_of_training", {"spec": spec | {"checkpoint_dir": None}})
    assert f"error: checkpoint `{copy}` is damaged" in message


def test_resume_from_a_damaged_checkpoint_is_an_error(workers, tiny, copy):
    flip_bit(copy / "step-000006" / "__1_0.distcp", 5000)
    messages = workers.run("error_of_training", {"spec": tiny | {"resume": str(copy / "step-000006")}}, world_size=2)
    assert "step-000006` is damaged\n  --> resume\n  cause: __1_0.distcp does not match its checksum" in messages[0]


def test_start_before_later_checkpoints_of_a_copy_is_an_error(workers, tiny, two_checkpoints, copy):
    """`auto` would resume from them the next time."""
    location = str(two_checkpoints / "step-000003")
    (message,) = workers.run("error_of_training", {"spec": tiny | {"checkpoint_dir": str(copy), "resume": location}})
    assert f"error: `{copy}` holds step-000006 of an earlier run" in message


def test_start_at_an_own_checkpoint_sets_the_later_ones_aside(workers, tiny, copy):
    change = {"strategy": "none", "micro_batch_size": 8, "checkpoint_dir": str(copy), "resume": str(copy / "step-000003")}
    (result,) = workers.run("run_training", {"spec": tiny | change, "stop_after": 1})
    assert list(result["losses"]) == ["4"]
    names = sorted(path.name for path in copy.glob("*step*"))
    assert [name.removesuffix(name[-5:]) for name in names[:1]] == ["earlier-step-000006"]
    assert names[1:] == ["step-000003", "step-000004"]


@pytest.mark.parametrize("resume", ["none", "an own checkpoint", "a checkpoint of another run"])
def test_launches_that_continue_a_run_ignore_its_start(workers, two_checkpoints, copy, resume):
    """A launch that continues the first or a later launch of the run goes on; one that continues nothing begins again."""
    other, own = two_checkpoints / "step-000003", copy / "step-000003"
    location = {"none": "none", "an own checkpoint": str(own), "a checkpoint of another run": str(other)}[resume]
    manifest = Manifest.read(copy / "step-000006")
    for run_id, continues in (("first", ""), ("second", "first")):
        (copy / "step-000006" / "manifest.json").unlink()
        replace(manifest, run_id=run_id, spec=manifest.spec | {"continues": continues}).write(copy / "step-000006")
        arguments = {"folder": str(copy), "resume": location, "run_id": "third"}
        assert workers.run("find_newest_checkpoint", arguments | {"continues": "first"}, world_size=2) == ["step-000006"] * 2
    if resume != "a checkpoint of another run":  # which would be an error
        expected = {"none": None}.get(resume, "step-000003")
        assert workers.run("find_newest_checkpoint", arguments, world_size=2) == [expected] * 2


def test_fresh_start_sets_earlier_checkpoints_aside(workers, tiny, copy):
    earlier = {name: Manifest.read(copy / name).loss for name in ("step-000003", "step-000006")}
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(copy), "resume": "none"}
    workers.run("run_training", {"spec": spec, "stop_after": 2})
    names = sorted(path.name for path in copy.glob("*step*"))
    assert [name[:-5] for name in names[:2]] == ["earlier-step-000003", "earlier-step-000006"]
    assert names[2:] == ["step-000002"]
    assert [Manifest.read(copy / name).loss for name in names[:2]] == list(earlier.values())
    assert find_newest(workers, copy) == "step-000002"


def test_fresh_start_beside_a_checkpoint_that_is_read_is_an_error(workers, tiny, copy):
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(copy), "resume": "none"}
    with pin(open_storage(str(copy)), "step-000003"):
        (message,) = workers.run("error_of_training", {"spec": spec})
    assert "step-000003` cannot be renamed to `earlier-…`: someone reads it" in message
    assert (copy / "step-000003" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("agents", "newest"),
    [(["gone", "own"], "step-000006"), (["gone"], None), (["gone", "remote"], "step-000006"), ([], "step-000006")],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_later_launch_with_the_same_id_starts_afresh(workers, copy, agents, newest):
    """A restart shares an agent. If all agents may be new, the warning names both explanations."""
    own = identify_process(os.getpid())
    identities = {"own": own, "gone": replace(own, started="1"), "remote": replace(own, machine="another")}
    manifest = Manifest.read(copy / "step-000006")
    (copy / "step-000006" / "manifest.json").unlink()
    changed = replace(manifest, run_id="job1", agents=[identities[name] for name in agents])
    changed.write(copy / "step-000006")
    arguments = {"folder": str(copy), "resume": "none", "run_id": "job1", "agents": [asdict(own)]}
    before = len(workers.log())
    assert workers.run("find_newest_checkpoint", arguments, world_size=2) == [newest] * 2
    assert (copy / "step-000006").exists() == bool(newest)
    warns = "`resume: none` does not apply: this is a restart of launch `job1`, or another" in workers.log()[before:]
    assert warns == (bool(newest) and "own" not in agents)


@pytest.mark.parametrize(("strategy", "world_size"), [("none", 1), ("fsdp", 2), ("ddp", 2), ("deepspeed", 2)], ids=str)
def test_optimiser_settings_are_those_of_the_spec(workers, tiny, two_checkpoints, strategy, world_size):
    change = {"lr": 3e-5, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.3, "zero_stage": 2, "strategy": strategy}
    spec = tiny | change | {"resume": str(two_checkpoints / "step-000006")}
    for groups in workers.run("optimizer_settings_after_load", {"spec": spec}, world_size=world_size):
        assert [(group["lr"], list(group["betas"]), group["eps"]) for group in groups] == [(3e-5, [0.8, 0.99], 1e-6)] * 2
        assert [group["weight_decay"] for group in groups] == [0.3, 0.0]


def test_resume_reports_changed_settings(workers, tiny, two_checkpoints):
    change = {"strategy": "ddp", "max_steps": 7, "lr": 0.002, "resume": str(two_checkpoints / "step-000006")}
    workers.run("run_training", {"spec": tiny | change}, world_size=2)
    line = workers.log().rpartition("Changed since step-000006: ")[2].splitlines()[0]
    assert line.split(", ")[0] == 'strategy "fsdp" -> "ddp"'
    assert {"max_steps 6 -> 7", "lr 0.01 -> 0.002"} < set(line.split(", "))
    assert "resume" not in line


def edit_config(folder, **changes):
    """Change settings in a model's `config.json`."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_other_settings_of_the_model_are_refused(workers, tiny, tmp_path):
    """Every setting here changes what the model computes, but no shape."""
    model = Path(save_tiny_llama(tmp_path / "model"))
    spec = tiny | {"model": str(model), "vocab_size": None, "strategy": "fsdp", "checkpoint_dir": str(tmp_path / "c")}
    workers.run("run_training", {"spec": spec | {"max_steps": 1}})
    edit_config(model, use_cache=True, eos_token_id=7, max_position_embeddings=512, attention_dropout=0.25)
    workers.run("run_training", {"spec": spec | {"max_steps": 2}})
    assert "attention_dropout of the model 0.0 -> 0.25" in workers.log().rpartition("Changed since step-000001: ")[2]
    rope = {"rope_type": "default", "rope_theta": 3.0}
    edit_config(model, rms_norm_eps=5.0, hidden_act="relu", rope_parameters=rope)
    (message,) = workers.run("error_of_training", {"spec": spec | {"max_steps": 3}})
    assert "error: step-000002 is of a model with other settings" in message
    assert 'hidden_act: "silu" in the checkpoint, "relu" in the model' in message
    assert "rms_norm_eps: 1e-06 in the checkpoint, 5.0 in the model" in message
    assert "rope_parameters.rope_theta: 10000.0 in the checkpoint, 3.0 in the model" in message

    checkpoint_folder = tmp_path / "c" / "step-000002"
    earlier = replace(Manifest.read(checkpoint_folder), model_settings={})  # as earlier versions wrote it
    earlier.write(checkpoint_folder)
    workers.run("run_training", {"spec": spec | {"max_steps": 3}})
    assert (tmp_path / "c" / "step-000003").exists()


def test_checkpoint_of_another_version_is_an_error(copy):
    body = vars(Manifest.read(copy / "step-000006"))
    Manifest(**body | {"version": 99}).write(copy / "step-000006")
    with pytest.raises(KfjobError, match="has version 99, this trainer reads 1"):
        Manifest.read(copy / "step-000006")
    with pytest.raises(KfjobError, match="has version 99, this trainer reads 1"):
        checkpoint.list_checkpoints(open_storage(str(copy)))


def make_unreadable(path):
    """Replace a file by a link to itself: nobody can open it, not even root."""
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize("file", ["manifest.json", "__1_0.distcp"])
@pytest.mark.parametrize("resume", ["auto", "path"])
def test_checkpoint_that_cannot_be_read_stops_every_rank(workers, tiny, copy, file, resume):
    """It may be as good as new, so nothing is renamed or replaced."""
    make_unreadable(copy / "step-000006" / file)
    place = {"checkpoint_dir": str(copy)} if resume == "auto" else {"resume": str(copy)}
    messages = workers.run("error_of_training", {"spec": tiny | {"strategy": "fsdp"} | place}, world_size=2)
    assert any(f"error: cannot read `{copy}/step-000006/{file}`" in message for message in messages)
    assert all(message.startswith("error: ") for message in messages)
    assert any(f"--> {'resume' if resume == 'path' else 'checkpoint_dir'}\n" in message for message in messages)
    assert any("hint: give this process read access" in message for message in messages)
    assert sorted(path.name for path in copy.iterdir() if path.is_dir()) == ["step-000003", "step-000006"]


def test_unreadable_manifest_does_not_end_a_run_that_deletes_old_checkpoints(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path / "c"), "checkpoint_every": 1, "keep_last": 1}
    arguments = {"spec": spec, "folder": str(tmp_path / "c"), "step": 2}
    (outcome,) = workers.run("make_manifest_unreadable_while_training", arguments)
    assert outcome == "finished"
    assert "Old checkpoints not deleted: cannot read" in workers.log()


def test_copy_from_an_object_store_is_used(workers, two_checkpoints, tmp_path):
    """There the files are in a folder below that of the checkpoint."""
    folder = tmp_path / "run" / "step-000006"
    shutil.copytree(two_checkpoints / "step-000006", folder / "token")
    (folder / "token" / "manifest.json").unlink()
    Manifest(**vars(Manifest.read(two_checkpoints / "step-000006")) | {"shards": "token"}).write(folder)
    assert find_newest(workers, tmp_path / "run") == "step-000006"
    assert export(str(folder), tmp_path / "model.pt", file_format="torch").endswith(f"in {tmp_path}/model.pt")


def test_location_directly_below_the_root_is_absolute(two_checkpoints):
    manifest = Manifest.read(two_checkpoints / "step-000006")
    storage, name = split_location("/ckpt")
    assert (storage.location, name) == ("/", "ckpt")
    assert Checkpoint(storage=storage, name=name, manifest=manifest).path == "/ckpt"


@pytest.mark.parametrize("location", ["/no-such-checkpoint", "/" + "x" * 5000])
def test_error_of_resume_names_resume(workers, tiny, location):
    (message,) = workers.run("error_of_training", {"spec": tiny | {"resume": location}})
    assert "--> resume" in message
    assert location in message


def test_unwritable_folder_is_an_error(workers, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    (message,) = workers.run("error_of_training", {"spec": tiny | {"checkpoint_dir": str(tmp_path / "file" / "below")}})
    assert "error: cannot write to" in message


@pytest.mark.parametrize("change", [{"strategy": "ddp"}, {"strategy": "fsdp"}, {"strategy": "fsdp", "sharding": "no_shard"}])
def test_full_weights_stay_while_the_training_goes_on(workers, tiny, change):
    assert workers.run("weights_after_a_step", {"spec": tiny | change}) == [True]
