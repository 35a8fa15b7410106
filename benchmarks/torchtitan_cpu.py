"""The trainer and torchtitan on a CPU, with the same model and batch, in one process: the time of a step.

    OMP_NUM_THREADS=1 python -m benchmarks.torchtitan_cpu [--compile] [--strategy fsdp] [--steps N]

It needs torchtitan (gpu_wheels.txt), which runs only on GPUs: what it asks about one gets faked answers here. The model, the
step, the loss and the optimiser are its own. Both train a Llama of 21 million parameters in fp32, layers eager or compiled, and
their steps alternate, so that they see the same load. torchtitan wraps nothing on one rank, so the default strategy is `none`.
This says how much work each does on the host and in the model, nothing about a GPU.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.trainer_cpu import AlternatingSteps, medians
from kfjob.trainspec.train_spec import TrainSpec

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
    "precision": "fp32",
    "data": "synthetic",
    "sequence_length": 512,
    "micro_batch_size": 2,
    "loss_chunk": 0,
}
WARM_UP = 3
"""Steps that do not count."""


class FakedDevices:
    """The CPU as a module like `torch.cuda`."""

    def set_device(self, device: object) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


def fake_devices() -> None:
    """Replace what torchtitan asks about its GPU and about the ranks, which kfjob has joined."""
    import torchtitan.components.metrics
    import torchtitan.distributed.parallel_dims
    import torchtitan.distributed.utils
    import torchtitan.tools.utils

    names = ("max_active_gib", "max_active_pct", "max_reserved_gib", "max_reserved_pct", "num_alloc_retries", "num_ooms")
    no_memory = SimpleNamespace(**dict.fromkeys(names, 0))
    monitor = SimpleNamespace(device_name="cpu", get_peak_stats=lambda: no_memory, reset_peak_stats=lambda: None)
    for module in (torchtitan.tools.utils, torchtitan.distributed.utils, torchtitan.distributed.parallel_dims):
        vars(module).update(device_type="cpu", device_module=FakedDevices())
    vars(torchtitan.components.metrics).update(build_device_memory_monitor=lambda: monitor)
    vars(torchtitan.distributed.utils).update(init_distributed=lambda *_, **__: 1)


def make_torchtitan_step(spec: TrainSpec, folder: str) -> Callable[[], object]:
    """Return a function that takes torchtitan's next step."""
    fake_devices()
    from torchtitan.train import Trainer

    from benchmarks.torchtitan_loop import make_config, set_rank

    set_rank()
    config = make_config(spec.model_copy(update={"precision": "bf16"}), folder)
    config.training.mixed_precision_param = "float32"
    config.optimizer.implementation = "foreach"  # this torchtitan has its fused form for GPUs
    trainer = Trainer(config)
    batches = trainer.batch_generator(trainer.dataloader)

    def take_step() -> None:
        trainer.step += 1
        trainer.train_step(batches)

    return take_step


def measure(spec: TrainSpec) -> str:
    """Train with both; return the line of the table."""
    from kfjob.trainer.distributed import Ranks
    from kfjob.trainer.metrics import StartupTimer
    from kfjob.trainer.train import train

    ranks = Ranks.join()
    with tempfile.TemporaryDirectory() as folder:
        stepper: Any = AlternatingSteps(make_torchtitan_step(spec, folder))
        train(spec, ranks, stepper, StartupTimer())
    (wall, cpu), (base_wall, base_cpu) = (medians(stepper.durations[name][WARM_UP:]) for name in ("kfjob", "baseline"))
    times = f"kfjob {wall:.2f} s, torchtitan {base_wall:.2f} s, ratio {wall / base_wall:.2f}"
    return f"{times}; of CPU {cpu:.2f} s and {base_cpu:.2f} s, ratio {cpu / base_cpu:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--compile", action="store_true", help="compile the layers")
    parser.add_argument("--strategy", default="none", help="of kfjob, default: %(default)s")
    options = parser.parse_args()
    changes = {"max_steps": options.steps, "compile": options.compile, "strategy": options.strategy}
    spec = TrainSpec.model_validate(SPEC | changes)
    print(f"{options.strategy}, {'compiled' if options.compile else 'eager'}: {measure(spec)}", flush=True)


if __name__ == "__main__":
    main()
