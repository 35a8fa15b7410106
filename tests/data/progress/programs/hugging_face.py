"""A tiny GPT-2 trained by transformers' Trainer on random tokens."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
rows = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(0, 97, (160, 16))]
model = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=16, n_embd=32, n_layer=1, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=20,
        logging_steps=5,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        eval_strategy="steps",
        eval_steps=10,
    )
    Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:16]).train()
