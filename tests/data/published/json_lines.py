"""The shape of a program that logs one JSON object for each step."""

import json
import time
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
for step in range(start + 1, STEPS + 1):
    began = time.time()
    loss = tiny.fit(model, optimizer, *tiny.draw_batch(step))
    if dist.get_rank() == 0:
        if step % 2 == 0:
            tiny.save({"model": model.state_dict(), "step": step}, path)
        entry = {
            "ts": time.time(),
            "event": "train",
            "step": step,
            "metrics": {"loss": loss, "lr": 0.05},
            "dt": time.time() - began,
        }
        print(json.dumps(entry), flush=True)
    tiny.show(step=step, loss=loss)
dist.destroy_process_group()
