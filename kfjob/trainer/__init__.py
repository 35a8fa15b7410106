"""The trainer that jobs run: torchrun starts it in every pod, on a cluster and on one machine."""

import logging

# transformers imports torchao 0.18 if it is installed, about two enums of which torch 2.15 warns in every process
logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
