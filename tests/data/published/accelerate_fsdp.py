"""The shape of FSDP by Accelerate's config: the launcher's variables say how to shard, and pairs are printed."""

import os
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

STEPS = 8


def main():
    if os.environ.get("ACCELERATE_USE_FSDP") != "true":
        raise SystemExit("this program needs an FSDP config: accelerate launch --config_file fsdp.yaml")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        print("FSDP config:", {name: value for name, value in sorted(os.environ.items()) if name.startswith("FSDP_")})
    model = tiny.make_model()
    mesh = torch.distributed.init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    own = Path(f"fsdp-{rank}.pt")
    start = 0
    if own.exists():  # each rank keeps its shard
        state = torch.load(own, weights_only=False)
        model.load_state_dict(state["model"])
        start = state["step"]
    for step in range(start + 1, STEPS + 1):
        loss = tiny.fit(model, optimizer, *tiny.draw_batch(step))
        if rank == 0:
            print(f"step={step} loss={loss:.4f} lr=0.05", flush=True)
        if step % 2 == 0:
            tiny.save({"model": model.state_dict(), "step": step}, own)
            dist.barrier()
        tiny.show(step=step, loss=loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
