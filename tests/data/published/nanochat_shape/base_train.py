"""The shape of nanochat's base training: started with `-m`, `step 00010/00100 (10.00%) | loss: …`, `print0`."""

import argparse
import time
from pathlib import Path

import tiny
import torch
import torch.distributed as dist


def print0(*words):
    if dist.get_rank() == 0:
        print(*words, flush=True)


parser = argparse.ArgumentParser()
parser.add_argument("--num-iterations", type=int, default=8)
parser.add_argument("--save-every", type=int, default=2)
parser.add_argument("--resume-from-step", type=int, default=-1)
options = parser.parse_args()
dist.init_process_group("gloo")
print0(f"Tokens / micro-batch / rank: {8:,}\nTotal batch size {16:,} => gradient accumulation steps: 1")
model, optimizer = tiny.make_parts()
folder = Path("base_checkpoints")
folder.mkdir(exist_ok=True)
saved = sorted(folder.glob("model_*.pt"))
step = 0
if saved and options.resume_from_step == -1:
    step = int(saved[-1].stem.removeprefix("model_"))
    print0(f"Resuming optimization from step {step}")
    model.module.load_state_dict(torch.load(saved[-1]))
minutes, smooth = 0.0, 0.0
while step < options.num_iterations:
    if step % 4 == 0:
        print0(f"Step {step:05d} | Validation bpb: {1.2 - step / 100:.6f}")
    begin = time.time()
    smooth = tiny.fit(model, optimizer, *tiny.draw_batch(step))
    spent = time.time() - begin
    minutes += spent / 60
    percent = 100 * step / options.num_iterations
    print0(
        f"step {step:05d}/{options.num_iterations:05d} ({percent:.2f}%) | loss: {smooth:.6f} | lrm: 1.00 | "
        f"dt: {spent * 1000:.2f}ms | tok/sec: {int(16 / spent):,} | bf16_mfu: 1.20 | epoch: 1 | total time: {minutes:.2f}m"
    )
    step += 1
    if step % options.save_every == 0 and dist.get_rank() == 0:
        tiny.save(model.module.state_dict(), folder / f"model_{step:06d}.pt")
    tiny.show(step=step - 1, loss=smooth)
print0(f"Total training time: {minutes:.2f}m\nMinimum validation bpb: 1.120000")
dist.destroy_process_group()
