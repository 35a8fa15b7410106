"""The loop of the `no_trainer` examples of transformers and accelerate: a nameless bar, and a line for each epoch."""

import logging
import math

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from tqdm.auto import tqdm

logger = get_logger(__name__)
logging.basicConfig(
    format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO
)
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
rows = torch.utils.data.TensorDataset(torch.randn(160, 64), torch.randn(160, 1))
loader = torch.utils.data.DataLoader(rows, batch_size=16)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
epochs, steps = 2, 2 * len(loader)
logger.info("***** Running training *****")
logger.info("  Num Epochs = %s", epochs)
logger.info("  Total optimization steps = %s", steps)
progress_bar = tqdm(range(steps), disable=not accelerator.is_local_main_process, mininterval=0)
for epoch in range(epochs):
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        progress_bar.update(1)
    logger.info("epoch %s: perplexity: %s eval_loss: %s", epoch, math.exp(loss), loss)
