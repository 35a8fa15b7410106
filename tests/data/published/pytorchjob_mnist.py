"""The shape of Kubeflow's MNIST: no launcher; the operator's variables connect one process of each pod."""

import argparse
import os
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--dir", default="logs")
    options = parser.parse_args()
    print(f"Using distributed PyTorch with {options.backend} backend")
    print("master", os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"], "rank", os.environ["RANK"])
    dist.init_process_group(backend=options.backend)
    model, optimizer = tiny.make_parts()
    data = tiny.make_data()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    start = 1
    saved = Path(options.dir) / "mnist.pt"
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        start = state["epoch"] + 1
    saved.parent.mkdir(exist_ok=True)
    for epoch in range(start, options.epochs + 1):
        for index, (inputs, targets) in enumerate(loader):
            loss = tiny.fit(model, optimizer, inputs, targets)
            done, percent = index * len(inputs), 100.0 * index / len(loader)
            print(f"Train Epoch: {epoch} [{done}/{len(data)} ({percent:.0f}%)]\tloss={loss:.4f}")
            tiny.show(epoch=epoch, loss=loss)
        if dist.get_rank() == 0:
            tiny.save({"model": model.state_dict(), "epoch": epoch}, saved)
        print(f"\naccuracy={0.9 + epoch / 100:.4f}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
