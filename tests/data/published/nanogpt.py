"""The shape of nanoGPT: `--name=value` overrides a global, data is a memory map, and `iter N: loss X` is printed."""

import ast
import os
import sys
import time
from pathlib import Path

import numpy as np
import tiny
import torch
import torch.distributed as dist

out_dir = "out"
init_from = "scratch"
max_iters = 8
eval_interval = 4
log_interval = 1
names = [name for name, value in globals().items() if not name.startswith("_") and isinstance(value, int | float | bool | str)]
for word in sys.argv[1:]:
    name, _, text = word.removeprefix("--").partition("=")
    if name not in names:
        raise ValueError(f"Unknown config key: {name}")
    try:
        globals()[name] = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        globals()[name] = text
    print(f"Overriding: {name} = {globals()[name]}")

dist.init_process_group("gloo")
master = int(os.environ["RANK"]) == 0
print(f"tokens per iteration will be: {8 * dist.get_world_size():,}")
if master:
    Path(out_dir).mkdir(exist_ok=True)
    (np.arange(512) % 64).astype(np.uint16).tofile(Path(out_dir) / "train.bin")
dist.barrier()
tokens = np.memmap(Path(out_dir) / "train.bin", dtype=np.uint16, mode="r")


def get_batch(iteration):
    start = iteration * 32 % (len(tokens) - 32)
    inputs = torch.from_numpy(tokens[start : start + 32].astype(np.float32)).view(8, 4) / 64
    return inputs, inputs.sum(1, keepdim=True)


model, optimizer = tiny.make_parts()
number = 0
if init_from == "resume" or (init_from == "auto" and (Path(out_dir) / "ckpt.pt").exists()):
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(Path(out_dir) / "ckpt.pt")
    model.module.load_state_dict(checkpoint["model"])
    number = checkpoint["iter_num"]
else:
    print("Initializing a new model from scratch")
began = time.time()
while True:
    if number % eval_interval == 0 and master:
        print(f"step {number}: train loss {1.5 - number / 10:.4f}, val loss {1.6 - number / 10:.4f}")
        if number > 0:
            print(f"saving checkpoint to {out_dir}")
            tiny.save({"model": model.module.state_dict(), "iter_num": number}, Path(out_dir) / "ckpt.pt")
    loss = tiny.fit(model, optimizer, *get_batch(number))
    spent, began = time.time() - began, time.time()
    if number % log_interval == 0 and master:
        print(f"iter {number}: loss {loss:.4f}, time {spent * 1000:.2f}ms, mfu {12.3:.2f}%")
        tiny.show(step=number, loss=loss)
    number += 1
    if number > max_iters:
        break
dist.destroy_process_group()
