"""The trainer that jobs run: torchrun starts it in every pod, on a cluster and on one machine."""

import logging


def _is_of_users(record: logging.LogRecord) -> bool:
    """Return whether a message of torch is not about the enums of torchao 0.18, which transformers imports."""
    return "Calling register_constant() on Enum" not in str(record.msg)


logging.getLogger("torch.utils._pytree").addFilter(_is_of_users)  # torch 2.15 would print two lines in every process
