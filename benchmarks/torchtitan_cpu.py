"""The trainer and torchtitan on a CPU, with the same model and batch, in one run: the CPU time of a step.

    python -m benchmarks.torchtitan_cpu [--rounds N]                             # needs torchtitan (gpu_wheels.txt)

torchtitan runs only on GPUs, so what it asks about one gets faked answers here; the model, the loop, the loss and the optimiser
are its own. Both train a Llama of 21 million parameters in fp32 with one thread, layers eager or compiled. Load changes CPU
time least; that of the start and the compilation is taken off by a second, shorter run. This says how much work each does on
the host and in the model, nothing about a GPU.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks.trainer_gpu import ENVIRONMENT, run_python, run_trainer
from kfjob.spec.train import TrainSpec

SHORT, LONG = 2, 12
"""Steps of the two runs."""
SPEC: dict[str, Any] = {
    "model": {
        "vocab_size": 8192,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "strategy": "fsdp",
    "precision": "fp32",
    "data": "synthetic",
    "sequence_length": 512,
    "micro_batch_size": 2,
    "loss_chunk": 0,
    "log_every": 2,
    "peak_tflops": 0.1,
    "max_steps": LONG,
}


def run_torchtitan(spec: TrainSpec) -> None:
    """Train in this process."""
    import torch
    import torchtitan.components.metrics
    import torchtitan.distributed.parallel_dims
    import torchtitan.distributed.utils
    import torchtitan.tools.utils

    from benchmarks.torchtitan_loop import make_config, set_rank

    class FakedDevices:
        """The CPU as a module like `torch.cuda`."""

        def set_device(self, device: object) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return getattr(torch.cpu, name)

    statistics_of_no_memory = dict.fromkeys(
        ("max_active_gib", "max_active_pct", "max_reserved_gib", "max_reserved_pct", "num_alloc_retries", "num_ooms"), 0
    )
    faked_monitor = SimpleNamespace(
        device_name="cpu",
        get_peak_stats=lambda: SimpleNamespace(**statistics_of_no_memory),
        reset_peak_stats=lambda: None,
    )
    for module in (torchtitan.tools.utils, torchtitan.distributed.utils, torchtitan.distributed.parallel_dims):
        vars(module).update(device_type="cpu", device_module=FakedDevices())
    vars(torchtitan.components.metrics).update(build_device_memory_monitor=lambda: faked_monitor)
    vars(torchtitan.distributed.utils).update(set_pg_timeouts=lambda **_: None)

    from torchtitan.train import Trainer

    set_rank()
    with tempfile.TemporaryDirectory() as folder, mock.patch("torch.cuda.max_memory_allocated", return_value=0):
        config = make_config(spec.model_copy(update={"precision": "bf16"}), folder)
        config.training.mixed_precision_param = "float32"
        config.optimizer.implementation = "foreach"  # this torchtitan has its fused form for GPUs
        Trainer(config).train()


def measure(program: str, spec: TrainSpec) -> float:
    """Return the CPU time of a step in seconds."""
    times = []
    for steps in (SHORT, LONG):
        of_length, before = spec.model_copy(update={"max_steps": steps}), read_clock()
        if program == "torchtitan":
            run_python("-m", "benchmarks.torchtitan_cpu", "--loop", of_length.model_dump_json())
        else:
            with tempfile.TemporaryDirectory() as folder:
                run_trainer(of_length, Path(folder) / "figures.jsonl")
        times.append(read_clock() - before)
    return (times[1] - times[0]) / (LONG - SHORT)


def read_clock() -> float:
    """Return the CPU time of all children that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--loop", metavar="SPEC", help=argparse.SUPPRESS)
    options = parser.parse_args()
    ENVIRONMENT["OMP_NUM_THREADS"] = "1"  # of the child processes
    if options.loop:
        run_torchtitan(TrainSpec.model_validate_json(options.loop))
        return
    for compiled in (False, True):
        spec = TrainSpec.model_validate(SPEC | {"compile": compiled})
        times: dict[str, list[float]] = {"torchtitan": [], "kfjob": []}
        for _ in range(options.rounds):
            for program, measured in times.items():
                measured.append(measure(program, spec))
        titan, own = (statistics.median(measured) for measured in times.values())
        ratios = ", ".join(f"{kfjob / base:.2f}" for base, kfjob in zip(*times.values(), strict=True))
        form = "compiled" if compiled else "eager"
        print(f"{form:<8} kfjob {own:.2f} s, torchtitan {titan:.2f} s, ratio {own / titan:.2f} (rounds: {ratios})", flush=True)


if __name__ == "__main__":
    main()
