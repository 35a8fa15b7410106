"""The words that start a launcher on one node, as kfjob compiles them (kfjob.plan.launchers), told from the program. Pure."""

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
    """The launcher and the program with its arguments; None if this is a command of another kind."""
    for launcher, starts in _STARTS.items():
        for start in starts:
            if tuple(words[: len(start)]) == start:
                rest = list(words[len(start) :])
                while rest and rest[0].partition("=")[0].removeprefix("--") in _OPTIONS[launcher] and rest[0][:2] == "--":
                    rest.pop(0)
                return launcher, ["-m" if word == "--module" else word for word in rest[:1]] + rest[1:]
    return None
