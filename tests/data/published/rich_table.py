"""The shape of a program that prints its progress as a table with a frame."""

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
if dist.get_rank() == 0:
    print("┏━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━┓\n┃   Step ┃ Train loss ┃      LR ┃\n┡━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━┩", flush=True)
for step in range(start + 1, STEPS + 1):
    loss = tiny.fit(model, optimizer, *tiny.draw_batch(step))
    if dist.get_rank() == 0:
        if step % 2 == 0:
            tiny.save({"model": model.state_dict(), "step": step}, path)
        print(f"│ {step:>6} │ {loss:>10.5f} │ {0.05:>7.1e} │", flush=True)
    tiny.show(step=step, loss=loss)
if dist.get_rank() == 0:
    print("└────────┴────────────┴─────────┘")
dist.destroy_process_group()
