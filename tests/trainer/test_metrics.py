from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from kfjob.trainer import metrics
from kfjob.trainer.metrics import Outcome
from kfjob.trainer.storage import FolderStorage

REFERENCE = "2024-06-12 00:08:25 I [train.py:102] Batch 979 Loss: 5.63272, Speed: 0.43 samples/sec, lr: 0.000091"
STEP_METRICS = metrics.StepMetrics(
    loss=1.5,
    lr=1e-4,
    grad_norm=0.51234,
    samples_per_second=9.0,
    tokens_per_second=1234.5,
    tokens_per_second_per_device=617.25,
    mfu=None,
    peak_memory=3 * 2**29,
)


def test_progress_line_equals_the_reference(capsys):
    metrics.start_logging(verbose=True)
    record = metrics.log.makeRecord(
        "kfjob.trainer", 20, "/x/train.py", 102, metrics.progress_line(979, loss=5.632718, speed=0.4312, lr=9.1e-5), (), None
    )
    record.created = 1718150905.25  # 2024-06-12 00:08:25 UTC
    metrics.log.handle(record)
    assert capsys.readouterr().out == REFERENCE + "\n"


def test_log_times_are_utc(capsys, monkeypatch):
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        metrics.start_logging(verbose=True)
        before = time.time()
        metrics.log.info("x")
        output = capsys.readouterr().out
    finally:
        monkeypatch.undo()
        time.tzset()
    expected_times = {time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(before + seconds)) for seconds in (0, 1)}
    assert output[:19] in expected_times
    assert re.fullmatch(r"\S+ \S+ I \[test_metrics\.py:\d+\] x\n", output)


def test_other_ranks_log_only_warnings_and_errors(capsys):
    metrics.start_logging(verbose=False)
    metrics.log.info("Batch 1")
    metrics.log.warning("careful")
    output = capsys.readouterr().out
    assert "Batch" not in output
    assert re.search(r" W \[test_metrics\.py:\d+\] careful\n$", output)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            metrics.start_line(
                model="tiny-llama", parameters=5, strategy="fsdp full", world_size=2, global_batch=16, total_steps=9
            ),
            "Start tiny-llama with 5 parameters, strategy fsdp full, world size 2, global batch 16 samples, 9 steps",
        ),
        (metrics.resume_line(None, None), "Resume none"),
        (
            metrics.metrics_line(7, STEP_METRICS),
            "Step 7 tokens/s: 1234, grad norm: 0.5123, peak memory: 1.50 GiB, tokens/s/device: 617",
        ),
        (
            metrics.metrics_line(7, replace(STEP_METRICS, mfu=0.41349)),
            "Step 7 tokens/s: 1234, grad norm: 0.5123, peak memory: 1.50 GiB, tokens/s/device: 617, MFU: 41.3 %",
        ),
        (metrics.evaluation_line(7, loss=1.5, tokens=2048), "Evaluation step 7 loss 1.50000, perplexity 4.48, 2048 tokens"),
        (
            Outcome(outcome="failed", reason='no "x"').line(),
            'Outcome failed step none loss none checkpoint none reason "no \\"x\\""',
        ),
        (Outcome(outcome="finished", step=9, loss=1.25).line(), "Outcome finished step 9 loss 1.25000 checkpoint none"),
    ],
)
def test_line_formats(line, expected):
    assert line == expected


def test_line_formats_with_paths(tmp_path):
    assert metrics.resume_line("step-000050", str(tmp_path)) == f"Resume step-000050 {tmp_path}"
    assert metrics.checkpoint_line("step-000050", str(tmp_path), 0.123) == f"Checkpoint step-000050 in 0.12 s {tmp_path}"
    line = Outcome(outcome="stopped", step=50, loss=1.0, checkpoint="/a b/step-000050", reason="signal").line()
    assert line == 'Outcome stopped step 50 loss 1.00000 checkpoint /a b/step-000050 reason "signal"'


def test_first_failure_is_not_overwritten(tmp_path):
    assert Outcome(outcome="failed", reason="the cause").write(FolderStorage(str(tmp_path)), overwrite=False)
    assert not Outcome(outcome="failed", reason="a consequence").write(FolderStorage(str(tmp_path)), overwrite=False)
    assert json.loads((tmp_path / "outcome.json").read_text())["reason"] == "the cause"
    assert Outcome(outcome="finished", step=3).write(FolderStorage(str(tmp_path)), overwrite=True)
    assert json.loads((tmp_path / "outcome.json").read_text())["outcome"] == "finished"
    assert [path.name for path in tmp_path.iterdir()] == ["outcome.json"]


def test_throughput_excludes_checkpoints_and_logged_steps():
    now = [0.0]
    throughput = metrics.Throughput(lambda: now[0])
    throughput.add_samples(8)
    throughput.add_samples(8)
    now[0] = 4.0
    assert throughput.measure() == 4.0
    with throughput.excluded():
        now[0] = 10.0
    now[0] = 12.0
    throughput.add_samples(8)
    assert throughput.measure() == 4.0
