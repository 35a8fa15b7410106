"""Two epochs of Lightning with its tqdm bar (`tqdm`) or the one it takes by itself (`default`)."""

import sys

import lightning
import torch
from lightning.pytorch.callbacks import TQDMProgressBar


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


lightning.seed_everything(0)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(160, 64), torch.randn(160, 1)), batch_size=16)
callbacks = [TQDMProgressBar(refresh_rate=1)] if sys.argv[1] == "tqdm" else []
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=callbacks, log_every_n_steps=1
)
trainer.fit(Module(), loader)
