"""What the server of forked processes has imported (forked.py)."""

from __future__ import annotations

import gc

from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from kfjob.trainer.model import build_meta_model
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer import rank_programs  # noqa: F401 -- the workers run its programs

build_meta_model(TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=16))  # which imports transformers' Llama
vars(dynamic_rendezvous)["get_method_name"] = lambda: ""  # visits all modules for each frame, at each heartbeat of an agent
gc.collect()
gc.freeze()
