"""The train spec, and what follows from it: shapes, memory, command lines."""

OWN_TRAINER = "kfjob.trainer"
"""The module of kfjob's trainer."""


def name_checkpoint(step: int) -> str:
    """Return the name of the checkpoint after a step, in the folder of the checkpoints."""
    return f"step-{step:06d}"
