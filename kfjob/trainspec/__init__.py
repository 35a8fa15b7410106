"""The train spec, and what follows from it: shapes, memory, command lines."""

OWN_TRAINER = "kfjob.trainer"
"""The module of kfjob's trainer."""
