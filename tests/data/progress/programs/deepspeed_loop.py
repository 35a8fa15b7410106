"""DeepSpeed's engine on the CPU: its own reports every fifth step, and its throughput timer's."""

import deepspeed
import torch
from deepspeed.utils import set_log_level_from_string

set_log_level_from_string("info")  # 0.19 is silent by default
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
config = {"train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 2, "steps_per_print": 5}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
for _ in range(40):
    loss = torch.nn.functional.mse_loss(engine(torch.randn(16, 64)), torch.randn(16, 1))
    engine.backward(loss)
    engine.step()
