"""The shape of Accelerate's NLP example with checkpoints: one dictionary of metrics for each epoch, and no loss."""

import argparse
from pathlib import Path

import tiny
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--num-epochs", type=int, default=7)
    options = parser.parse_args()
    accelerator = Accelerator(cpu=options.cpu)
    model = tiny.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(tiny.make_data(), batch_size=8))
    saved = sorted(Path("checkpoints").glob("epoch_*"))
    start = 0
    if saved:
        accelerator.print(f"Resumed from checkpoint: {saved[-1]}")
        accelerator.load_state(saved[-1])
        start = int(saved[-1].name.removeprefix("epoch_")) + 1
    for epoch in range(start, options.num_epochs):
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}:", {"accuracy": 0.5 + epoch / 100, "f1": 0.6 + epoch / 100}, flush=True)
        accelerator.save_state(f"checkpoints/epoch_{epoch}")
        tiny.show(accelerator.process_index, epoch=epoch)
    accelerator.end_training()


if __name__ == "__main__":
    main()
