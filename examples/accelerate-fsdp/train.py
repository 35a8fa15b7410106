"""Train a small BERT with Accelerate: `accelerate launch --config_file accelerate.yaml train.py`.

On CPUs Accelerate has no FSDP, and uses DDP instead. The lines show the class of the wrapped model.
"""

from __future__ import annotations

import os

import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForSequenceClassification


def main() -> None:
    """Train 20 steps on random tokens."""
    torch.manual_seed(0)
    accelerator = Accelerator()
    config = BertConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    model = BertForSequenceClassification(config)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    inputs = torch.randint(0, 200, (8, 16), device=accelerator.device)
    labels = inputs[:, 0] % 2
    for step in range(1, 21):
        loss = model(input_ids=inputs, labels=labels).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if accelerator.is_main_process:
            os.write(1, f"step {step}/20 | loss {loss.item():.4f} | {type(model).__name__}\n".encode())
    accelerator.end_training()


if __name__ == "__main__":
    main()
