from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from kfjob.base.errors import KfjobError
from kfjob.trainer import flops
from kfjob.trainer.lora import add_adapters
from kfjob.trainer.metrics import start_logging
from kfjob.trainer.model import build_meta_model
from kfjob.trainer.shapes import count_frozen
from kfjob.trainer.storage import Checkpoint, open_storage
from kfjob.trainer.trackers import Trackers, open_trackers
from kfjob.trainspec.flops import flops_per_token, peak_flops, shape_flops_per_token
from kfjob.trainspec.model_shapes import PRESETS
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.manifests import make_manifest

# tokens/s of a GPU, what is model, and the MFU that was published with it, in per cent
TITAN_8B = {"parameters": 8_030_261_248, "embedding": 128_256 * 4096, "layers": 32, "heads": 32, "head_dim": 128}
FOUNDRY = {"embedding": 0, "layers": 24, "heads": 16, "head_dim": 128, "parameters": 1_315_950_592}
FOUNDRY_7B = {"embedding": 0, "layers": 32, "heads": 32, "head_dim": 128, "parameters": 6_658_859_008}


@pytest.mark.parametrize(
    ("tokens_per_second", "model", "sequence_length", "published"),
    [
        (5762, TITAN_8B, 8192, 33.7),  # torchtitan, 8 H100, eager
        (6667, TITAN_8B, 8192, 39.0),  # compiled
        (45455, FOUNDRY, 2048, 41.8),  # llm-foundry, 8 H100, 1.3B
        (38535, FOUNDRY | {"parameters": 1_315_950_592 + 2048 * 2048}, 4096, 40.3),  # its position embeddings are trained
        (10643, FOUNDRY_7B, 2048, 46.4),
    ],
)
def test_published_mfu_is_reproduced(tokens_per_second, model, sequence_length, published):
    peak = peak_flops("NVIDIA H100 80GB HBM3", "bf16")
    per_token = flops_per_token(**model, sequence_length=sequence_length)
    assert 100 * tokens_per_second * per_token / peak == pytest.approx(published, abs=0.1)


def test_peak_flops_of_devices_and_precisions():
    assert peak_flops("NVIDIA H200", "bf16") == 989e12
    assert peak_flops("NVIDIA H100 PCIe", "bf16") == 756e12
    assert peak_flops("NVIDIA A100-SXM4-40GB", "bf16-true") == 312e12
    assert peak_flops("NVIDIA A10G", "bf16") != peak_flops("NVIDIA A10", "bf16")
    assert peak_flops("NVIDIA H200", "fp32") is None
    assert peak_flops("Some other GPU", "bf16") is None


def test_tied_embedding_counts_as_flops():
    class Model:
        class config:  # noqa: N801 -- as transformers has it
            num_attention_heads, num_hidden_layers, hidden_size, vocab_size = 4, 2, 32, 320
            tie_word_embeddings = True

    assert flops.model_flops_per_token(Model(), 1000, 16) == 6 * 1000 + 12 * 2 * 32 * 16
    Model.config.tie_word_embeddings = False
    assert flops.model_flops_per_token(Model(), 20000, 16) == 6 * (20000 - 320 * 32) + 12 * 2 * 32 * 16
    frozen = flops.model_flops_per_token(Model(), 20000, 16, frozen=19000)  # 1000 parameters are trained
    assert frozen == 6 * 1000 + 4 * (19000 - 320 * 32) + 12 * 2 * 32 * 16


def test_flops_of_a_shape_with_adapters_equal_those_of_the_model():
    spec = TrainSpec(model="tiny-llama", data="-", max_steps=1, lora={})
    model = build_meta_model(spec)
    add_adapters(model, spec)
    count, frozen = sum(parameter.numel() for parameter in model.parameters()), count_frozen(model)
    expected = flops.model_flops_per_token(model, count, 64, frozen=frozen)
    shape = PRESETS["tiny-llama"]
    assert shape_flops_per_token(shape, 64, spec.lora) == expected < shape_flops_per_token(shape, 64)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_json_lines_of_the_log_rank(workers, tiny, tmp_path):
    spec = tiny | {
        "strategy": "fsdp",
        "metrics_file": str(tmp_path / "m" / "metrics.jsonl"),
        "checkpoint_dir": str(tmp_path / "c"),
        "log_rank": 1,
        "eval_every": 3,
        "peak_tflops": 1e-3,
    }
    results = workers.run("run_training", {"spec": spec}, world_size=2)
    lines = read_lines(tmp_path / "m" / "metrics.jsonl")
    steps = [line for line in lines if "loss" in line]
    assert {line["step"]: line["loss"] for line in steps} == {int(step): loss for step, loss in results[0]["losses"].items()}
    for line in steps:
        assert line["tokens_per_second"] == pytest.approx(16 * line["samples_per_second"])
        assert line["tokens_per_second_per_device"] == pytest.approx(line["tokens_per_second"] / 2)
        assert line["mfu"] > 0
        assert line["grad_norm"] > 0
        assert line["peak_memory"] > 2**20
    assert [line["step"] for line in lines if "eval_loss" in line] == [3, 6]
    assert [line["checkpoint"] for line in lines if "checkpoint" in line] == [str(tmp_path / "c" / "step-000006")]


def test_log_rank_must_exist(workers, tiny):
    (message,) = workers.run("error_of_training", {"spec": tiny | {"log_rank": 2}})
    assert "error: `log_rank: 2` does not exist in a run of 1 rank\n  --> log_rank" in message


def test_tensorboard_has_every_metric(workers, tiny, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    spec = tiny | {"strategy": "none", "tensorboard_dir": str(tmp_path)}
    (result,) = workers.run("run_training", {"spec": spec})
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    losses = {str(event.step): event.value for event in events.Scalars("loss")}
    assert losses == {step: pytest.approx(loss) for step, loss in result["losses"].items()}
    assert set(events.Tags()["scalars"]) >= {"lr", "grad_norm", "tokens_per_second_per_device", "peak_memory"}


def leveldb_log(content):
    """Yield the records of a log in LevelDB's format, after W&B's own 7 bytes.

    The log has blocks of 32 KiB; a part has a checksum of 4 bytes, a length of 2 and a kind (full, first, middle, last) of 1.
    """
    offset, record = 7, b""
    content = bytes(7) + content
    while offset < len(content):
        if 2**15 - offset % 2**15 < 7:
            offset += 2**15 - offset % 2**15
            continue
        length, kind = int.from_bytes(content[offset + 4 : offset + 6], "little"), content[offset + 6]
        if kind == 0:
            offset += 2**15 - offset % 2**15
            continue
        record += content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def test_weights_and_biases_offline(workers, tiny, tmp_path, monkeypatch):
    """The run's file has entity, project, metrics and both artifacts; nothing leaves the machine."""
    from wandb.proto import wandb_internal_pb2

    record_of: Any = vars(wandb_internal_pb2)["Record"]
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path / "c"), "checkpoint_every": 3}
    spec |= {"wandb_project": "fabric_llama", "wandb_entity": "somebody", "wandb_log_model": "all"}
    environment = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path / "w"), "WANDB_DATA_DIR": str(tmp_path / "d")}
    environment |= {"WANDB_CACHE_DIR": str(tmp_path / "k"), "WANDB_CONFIG_DIR": str(tmp_path / "g")}
    (tmp_path / "w").mkdir()
    (result,) = workers.run("run_training", {"spec": spec, "environment": environment})
    (path,) = tmp_path.glob("w/wandb/offline-run-*/run-*.wandb")
    records = [record_of.FromString(data) for data in leveldb_log(path.read_bytes()[7:])]
    (run,) = [record.run for record in records if record.HasField("run")]
    assert (run.project, run.entity) == ("fabric_llama", "somebody")
    losses = {}
    for record in records:
        row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        if "loss" in row:
            losses[str(row["step"])] = row["loss"]
    assert losses == result["losses"]
    requests = [record.request.log_artifact.artifact for record in records if record.request.HasField("log_artifact")]
    artifacts = [record.artifact for record in records if record.HasField("artifact")] + requests
    assert [artifact.name for artifact in artifacts] == [f"checkpoint-{run.run_id}"] * 2
    assert [sorted(artifact.aliases) for artifact in artifacts] == [["latest", "step-000003"], ["latest", "step-000006"]]


@pytest.mark.parametrize(("field", "package"), [("tensorboard_dir", "tensorboard"), ("wandb_project", "wandb")])
def test_missing_package_is_named(monkeypatch, tmp_path, field, package):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    spec = TrainSpec(**{"model": "micro-llama", "data": "-", "max_steps": 1, "sequence_length": 16, field: str(tmp_path)})
    with pytest.raises(KfjobError) as raised:
        open_trackers(spec, log_rank=True)
    assert str(raised.value) == (
        f"error: `{field}` needs the package {package}\n  --> {field}\n"
        f"hint: add `pip install {package}` to the Dockerfile; in a checkout, run `uv pip install --editable '.[tracking]'`"
    )


def test_other_ranks_open_no_tracker(tmp_path):
    spec = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=16, metrics_file=str(tmp_path / "m"))
    with open_trackers(spec, log_rank=False) as trackers:
        trackers.log_metrics(1, loss=1.0)
    assert list(tmp_path.iterdir()) == []


def test_metrics_file_holds_no_password(tmp_path):
    spec = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=16, metrics_file=str(tmp_path / "m"))
    storage = open_storage("memory://user:hunter2SECRET@host/jobs")
    with open_trackers(spec, log_rank=True) as trackers:
        trackers.log_checkpoint(Checkpoint(storage=storage, name="step-000003", manifest=make_manifest(3)))
    (line,) = read_lines(tmp_path / "m")
    assert line["checkpoint"].endswith("@host/jobs/step-000003")
    assert "hunter2SECRET" not in line["checkpoint"]


class FullDisk:
    field = "metrics_file"

    def __init__(self) -> None:
        self.calls: list[int] = []

    def log_metrics(self, step, values):
        del values
        self.calls.append(step)
        raise OSError(28, "No space left on device")

    def log_checkpoint(self, checkpoint):
        raise AssertionError(checkpoint)

    def close(self):
        raise AssertionError


class Recording(FullDisk):
    def log_metrics(self, step, values):
        del values
        self.calls.append(step)

    def close(self):
        self.calls.append(0)


def test_tracker_that_fails_is_warned_of_once_and_left_out(capsys):
    start_logging(verbose=True)
    full, recording = FullDisk(), Recording()
    with Trackers([full, recording]) as trackers:
        for step in (1, 2):
            trackers.log_metrics(step, loss=1.0)
    assert full.calls == [1]
    assert recording.calls == [1, 2, 0]
    assert capsys.readouterr().out.count("Note metrics_file records no more metrics: [Errno 28] No space left") == 1


def test_metrics_file_on_a_full_disk_does_not_end_the_run(workers, tiny):
    (result,) = workers.run("run_training", {"spec": tiny | {"strategy": "none", "metrics_file": "/dev/full"}})
    assert result["outcome"]["outcome"] == "finished"


def test_tensorboard_in_an_impossible_folder_is_an_error(tiny, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(KfjobError, match="cannot write to") as caught:
        open_trackers(TrainSpec(**(tiny | {"tensorboard_dir": str(tmp_path / "file" / "runs")})), log_rank=True)
    assert caught.value.location == "tensorboard_dir"
