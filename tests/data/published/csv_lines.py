"""The shape of a program that logs a header and comma-separated values."""

import csv
import sys
from pathlib import Path

import tiny
import torch
import torch.distributed as dist

STEPS = 8
dist.init_process_group("gloo")
model, optimizer = tiny.make_parts()
path = Path("state.pt")
start = 0
if path.exists():
    state = torch.load(path)
    model.load_state_dict(state["model"])
    start = state["step"]
writer = csv.writer(sys.stdout)
if dist.get_rank() == 0:
    writer.writerow(["step", "epoch", "train_loss", "lr"])
for step in range(start + 1, STEPS + 1):
    loss = tiny.fit(model, optimizer, *tiny.draw_batch(step))
    if dist.get_rank() == 0:
        if step % 2 == 0:
            tiny.save({"model": model.state_dict(), "step": step}, path)
        writer.writerow([step, step // 4, f"{loss:.6f}", 0.05])
        sys.stdout.flush()
    tiny.show(step=step, loss=loss)
dist.destroy_process_group()
