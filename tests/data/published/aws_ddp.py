"""The shape of a cloud vendor's DDP example: every rank logs epochs and steps with the logging module, to stderr."""

import argparse
import logging
import os
import socket
from pathlib import Path

import tiny
import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s")
logger = logging.getLogger("ddp")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--total_epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--checkpoint_path", type=Path, default=Path("snapshot.pt"))
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    logger.info("Rank %d of %d on host %s", rank, dist.get_world_size(), socket.gethostname())
    model, optimizer = tiny.make_parts()
    first = 0
    if options.checkpoint_path.exists():
        state = torch.load(options.checkpoint_path)
        model.module.load_state_dict(state["model"])
        first = state["epoch"] + 1
        logger.info("Resuming from epoch %d", first)
    for epoch in range(first, options.total_epochs):
        for step in range(1, options.steps + 1):
            loss = tiny.fit(model, optimizer, *tiny.draw_batch(10 * epoch + step))
            logger.info("[RANK %d] Epoch %d | Step %d | Loss %.4f", rank, epoch, step, loss)
            tiny.show(epoch=epoch, step=step, loss=loss)
        if rank == 0:
            tiny.save({"model": model.module.state_dict(), "epoch": epoch}, options.checkpoint_path)
            logger.info("Epoch %d | Training checkpoint saved at %s", epoch, options.checkpoint_path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
