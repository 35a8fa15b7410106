"""The shape of DeepSpeed's CIFAR example: its engine steps, and `[epoch, batch] loss: …` is printed by rank 0."""

import argparse
import os
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import tiny
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # or it compiles that for a minute
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "SGD", "params": {"lr": 0.05}},
    "steps_per_print": 2000,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-e", "--epochs", type=int, default=3)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    options = parser.parse_args()
    deepspeed.init_distributed("gloo")
    model = tiny.make_model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    start = 0
    if Path("ckpt/latest").exists():
        _, state = engine.load_checkpoint("ckpt")
        start = state["epoch"] + 1
    for epoch in range(start, options.epochs):
        for i in range(4):
            inputs, targets = tiny.draw_batch(10 * epoch + i)
            loss = torch.nn.functional.mse_loss(engine(inputs), targets)
            engine.backward(loss)
            engine.step()
            if torch.distributed.get_rank() == 0:
                print(f"[{epoch + 1: d}, {i + 1: 5d}] loss: {loss.item(): .3f}", flush=True)
            tiny.show(epoch=epoch + 1, step=i + 1, loss=loss.item())
        engine.save_checkpoint("ckpt", client_state={"epoch": epoch})
    print("Finished Training")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
