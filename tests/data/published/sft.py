"""The shape of a TRL script: the Trainer of transformers prints dictionaries above its bar, and saves `checkpoint-N`."""

import sys

import tiny
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = tiny.make_model()

    def forward(self, inputs, labels):
        outputs = self.body(inputs)
        return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}


class Show(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.loss = float(logs["loss"])

    def on_save(self, args, state, control, **kwargs):
        tiny.show(state.is_world_process_zero - 1, step=state.global_step, loss=self.loss)


def main():
    arguments = TrainingArguments(
        output_dir="output",
        max_steps=int(sys.argv[1]),
        per_device_train_batch_size=4,
        logging_steps=1,
        save_steps=1,
        learning_rate=0.01,
        use_cpu=True,
        report_to=[],
        save_total_limit=2,
    )
    data = [{"inputs": inputs, "labels": targets} for inputs, targets in tiny.make_data()]
    trainer = Trainer(model=Regression(), args=arguments, train_dataset=data, callbacks=[Show()])
    trainer.train(resume_from_checkpoint=get_last_checkpoint("output"))


if __name__ == "__main__":
    main()
