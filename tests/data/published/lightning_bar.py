"""The shape of Lightning's Trainer: it finds torchelastic's environment by itself, and draws one bar for each epoch."""

import os
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
from tqdm import tqdm

EPOCHS, STEPS = 4, 4
VERSION = Path("lightning_logs/version_0/checkpoints")


def main():
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        raise SystemExit("Trainer(num_nodes=2) found no cluster environment")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{world}")
    model, optimizer = tiny.make_parts()
    VERSION.mkdir(parents=True, exist_ok=True)
    start = 0
    if (VERSION / "last.ckpt").exists():
        state = torch.load(VERSION / "last.ckpt")
        model.module.load_state_dict(state["state_dict"])
        start = state["epoch"] + 1
        print(f"Restored all states from the checkpoint at {VERSION / 'last.ckpt'}")
    if rank == 0:
        print("\n  | Name  | Type       | Params | Mode\n---------------------------------------------")
        print("0 | model | Sequential | 49     | train\n---------------------------------------------")
    for epoch in range(start, EPOCHS):
        form = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
        bar = tqdm(total=STEPS, desc=f"Epoch {epoch}", bar_format=form, disable=rank != 0)
        for step in range(STEPS):
            loss = tiny.fit(model, optimizer, *tiny.draw_batch(10 * epoch + step))
            bar.set_postfix_str(f"v_num=0, train_loss={loss:.3f}", refresh=False)
            bar.update(1)
            bar.refresh()
            tiny.show(epoch=epoch, step=step + 1, loss=loss)
        bar.close()
        if rank == 0:
            tiny.save({"state_dict": model.module.state_dict(), "epoch": epoch}, VERSION / "last.ckpt")
    print(f"`Trainer.fit` stopped: `max_epochs={EPOCHS}` reached.")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
