"""Split a command into its launcher and its program, as kfjob compiles them (kfjob.plan.launchers). Pure."""

from __future__ import annotations

from collections.abc import Sequence

_STARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "accelerate": (("accelerate", "launch"),),
    "deepspeed": (("python3", "-m", "deepspeed.launcher.launch"),),
    "launch": (("python3", "-m", "torch.distributed.launch"),),
    "python": (("python3",), ("python",)),
}
_OPTIONS = {
    "accelerate": (
        "multi_gpu",
        "num_machines",
        "num_processes",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "rdzv_backend",
    ),
    "deepspeed": ("world_info", "node_rank", "master_addr", "master_port"),
    "launch": ("use-env",),
    "python": (),
}


def split_launcher(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the launcher, and the program with its arguments; None if the command starts no known launcher."""
    for launcher, starts in _STARTS.items():
        for start in starts:
            if tuple(words[: len(start)]) == start:
                return launcher, _drop_options(words[len(start) :], _OPTIONS[launcher])
    return None


def _drop_options(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the program with its arguments, without the launcher's options before it."""
    program = list(words)
    while program and program[0][:2] == "--" and program[0].partition("=")[0].removeprefix("--") in options:
        program.pop(0)
    return ["-m" if word == "--module" else word for word in program[:1]] + program[1:]
