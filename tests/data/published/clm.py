"""The shape of a causal language model without a Trainer: Accelerate, its logger, and a bar with the loss before it."""

import argparse
import logging
from pathlib import Path

import tiny
import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

logger = get_logger(__name__)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_train_steps", type=int, default=8)
    parser.add_argument("--checkpointing_steps", type=int, default=2)
    parser.add_argument("--output_dir", type=Path, default=Path("out"))
    options = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", level=logging.INFO)
    model = tiny.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(tiny.make_data(512), batch_size=8))
    logger.info("***** Running training *****")
    logger.info("  Num examples = %d", 512)
    logger.info("  Total optimization steps = %d", options.max_train_steps)
    completed = 0
    bar = tqdm(range(options.max_train_steps), disable=not accelerator.is_local_main_process)
    if saved := sorted(options.output_dir.glob("step_*")):
        accelerator.print(f"Resumed from checkpoint: {saved[-1]}")
        accelerator.load_state(saved[-1])
        completed = int(saved[-1].name.removeprefix("step_"))
    bar.update(completed)
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        bar.set_description(f"loss: {loss.item():.4f}", refresh=False)
        bar.update(1)
        bar.refresh()
        completed += 1
        if completed % options.checkpointing_steps == 0:
            accelerator.save_state(options.output_dir / f"step_{completed}")
        tiny.show(accelerator.process_index, step=completed, loss=loss.item())
        if completed >= options.max_train_steps:
            break
    bar.close()
    logger.info("epoch 0: perplexity: %s eval_loss: %s train_loss: %s", 12.5, 2.5, loss.item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
