"""The shape of timm's train script: `Train: 0 [   1/4 ( 33%)]  Loss: …`, a test pass, and `summary.csv`."""

import argparse
import csv
import logging
import time
from pathlib import Path

import tiny
import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(message)s")
logger = logging.getLogger("train")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--resume", default="")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logger.info(f"Training in distributed mode with multiple processes, 1 device per process. Process {rank}, total {world}.")
    model, optimizer = tiny.make_parts()
    options.output.mkdir(exist_ok=True)
    start = 0
    if options.resume and Path(options.resume).exists():
        state = torch.load(options.resume)
        model.load_state_dict(state["state_dict"])
        start = state["epoch"] + 1
        logger.info(f"Loaded checkpoint '{options.resume}' (epoch {state['epoch']})")
    updates = 4
    for epoch in range(start, options.epochs):
        total = 0.0
        for i in range(updates):
            began = time.time()
            loss = tiny.fit(model, optimizer, *tiny.draw_batch(10 * epoch + i))
            total += loss
            spent = time.time() - began
            if rank == 0:
                percent, average, speed = 100 * i / (updates - 1), total / (i + 1), 16 / spent
                logger.info(
                    f"Train: {epoch} [{i:>4d}/{updates} ({percent:>3.0f}%)]  Loss: {loss:#.3g} ({average:#.3g})  "
                    f"Time: {spent:.3f}s, {speed:>7.2f}/s  ({spent:.3f}s, {speed:>7.2f}/s)  LR: 5.000e-02  Data: 0.001 (0.001)"
                )
            tiny.show(epoch=epoch, step=i, loss=loss)
        if rank == 0:
            logger.info(
                f"Test: [   0/1]  Time: 0.010 (0.010)  Loss: {loss + 0.1:>7.3f} ({loss + 0.1:>6.3f})  Acc@1: 12.500 ( 12.500)"
            )
            tiny.save({"state_dict": model.state_dict(), "epoch": epoch}, options.output / "last.pth.tar")
            with (options.output / "summary.csv").open("a") as file:
                csv.writer(file).writerow([epoch, total / updates])
            logger.info(f"Current checkpoints:\n ('{options.output}/checkpoint-{epoch}.pth.tar', 12.5)\n")
    if rank == 0:
        logger.info(f"*** Best metric: 12.5 (epoch {options.epochs - 1})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
