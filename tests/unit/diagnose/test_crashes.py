"""Crashes of native code, recorded on a real machine: signals, assertions, the C library, faulthandler, and denied writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.diagnose.cases import get_cause, read_cause, read_log

RECORDED = Path(__file__).parents[2] / "data" / "crashes"
CAUSES = {
    "abort": "worker-aborted",
    "argparse": "argument-error",
    "arithmetic": "arithmetic-signal",
    "assertion": "assertion-failed",
    "double-free": "heap-corrupted",
    "exec-format": "wrong-architecture",
    "faulthandler": "worker-crashed",
    "free": "heap-corrupted",
    "illegal-instruction": "illegal-instruction",
    "read-only": "read-only",
    "segmentation-fault": "worker-crashed",
    "stack-smashing": "heap-corrupted",
}
DUMP = """Fatal Python error: Segmentation fault

Thread 0x00007f2a1bfff700 (most recent call first):
  File "/usr/lib/python3.10/threading.py", line 324 in wait
  File "/w/other.py", line 60 in run

Current thread 0x00007f2c4a1c4740 (most recent call first):
  File "/usr/local/lib/python3.10/dist-packages/sentencepiece/__init__.py", line 310 in LoadFromFile
  File "/usr/local/lib/python3.10/dist-packages/transformers/tokenization_llama.py", line 201 in get_spm_processor
  File "/w/train.py", line 22 in <module>

Extension modules: numpy.core._multiarray_umath, torch._C (total: 91)
Segmentation fault (core dumped)"""


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_recorded_crash_has_its_cause(name: str):
    diagnosis = read_log((RECORDED / f"{name}.log").read_text())
    assert get_cause(diagnosis).rule == CAUSES[name]
    assert not diagnosis.other_causes


def test_every_recording_has_a_cause():
    assert {path.stem for path in RECORDED.glob("*.log")} == set(CAUSES)


def test_log_goes_on_after_a_dump():
    later = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."
    assert read_cause(f"{DUMP}\n{later}").rule == "cuda-oom"


@pytest.mark.parametrize(("text", "rule"), [
    ("OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.", "openmp-twice"),
    ("malloc(): corrupted top size", "heap-corrupted"),
    ("train: x.cpp:3: void f(): Assertion `n > 0' failed.", "assertion-failed"),
])  # fmt: skip
def test_report_of_a_crash_explains_the_signal_after_it(text: str, rule: str):
    diagnosis = read_log(f"{text}\n/bin/bash: line 1:    17 Aborted                 (core dumped) python train.py")
    assert get_cause(diagnosis).rule == rule
    assert [issue.rule for issue in diagnosis.consequences] == ["worker-aborted"]


def test_assertion_of_a_cuda_kernel_is_no_crash_of_native_code():
    text = "x/Indexing.cu:1308: f: block: [196,0,0], thread: [64,0,0] Assertion `srcIndex < srcSelectDimSize` failed."
    assert read_cause(f"{text}\nRuntimeError: CUDA error: device-side assert triggered").rule == "device-assert"


@pytest.mark.parametrize(("text", "rule"), [
    ("[node-3:00231] *** Process received signal ***\n[node-3:00231] Signal: Aborted (6)", "worker-aborted"),
    ("Bus error (core dumped)", "bus-error"),
    ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
     "shm-too-small"),
    ("  traceback : Signal 4 (SIGILL) received by PID 75", "illegal-instruction"),
])  # fmt: skip
def test_signal_has_its_own_cause(text: str, rule: str):
    assert read_cause(text).rule == rule
