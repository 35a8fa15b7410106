"""The shape of open_clip: its logger writes lines with a bar and meters, and checkpoints have the epoch in their name."""

import argparse
import logging
import time
from pathlib import Path

import tiny
import torch
import torch.distributed as dist

SAMPLES = 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--resume", default="")
    parser.add_argument("--name", default="run")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    level = logging.INFO if rank == 0 else logging.ERROR
    logging.basicConfig(format="%(asctime)s | %(levelname)s | %(message)s", datefmt="%Y-%m-%d,%H:%M:%S", level=level)
    folder = Path("logs", options.name, "checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    logging.info("Running in distributed mode with multiple processes. Process (global: %d, local 0), total %d.", rank, world)
    model, optimizer = tiny.make_parts()
    start = 0
    saved = sorted(folder.glob("epoch_*.pt"))
    if options.resume == "latest" and saved:
        state = torch.load(saved[-1])
        start = state["epoch"]
        model.load_state_dict(state["state_dict"])
        logging.info("=> resuming checkpoint '%s' (epoch %d)", saved[-1], start)
    for epoch in range(start, options.epochs):
        logging.info("Start epoch %d", epoch)
        total = 0.0
        batches = SAMPLES // (8 * world)
        for i in range(batches):
            began = time.time()
            loss = tiny.fit(model, optimizer, *tiny.draw_batch(10 * epoch + i))
            total += loss
            done, spent = (i + 1) * 8 * world, time.time() - began
            logging.info(
                f"Train Epoch: {epoch} [{done:>2}/{SAMPLES} ({100 * (i + 1) / batches:.0f}%)] Data (t): 0.001 "
                f"Batch (t): {spent:.3f}, {16 / spent:#g}/s, {8 / spent:#g}/s/gpu LR: 0.050000 Logit Scale: 14.286 "
                f"Contrastive_loss: {loss:#.5g} ({total / (i + 1):#.5g}) Loss: {loss:#.5g} ({total / (i + 1):#.5g})"
            )
            tiny.show(epoch=epoch, loss=loss)
        if rank == 0:
            tiny.save({"epoch": epoch + 1, "state_dict": model.state_dict()}, folder / f"epoch_{epoch + 1}.pt")
        logging.info(
            f"Eval Epoch: {epoch + 1} image_to_text_mean_rank: 12.5000\timage_to_text_R@1: 0.0{epoch}12\tval_loss: 2.1"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
