"""The recorded spec, read without the models, says the same as the models do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.api import observe_config
from kfjob.api.specs.render import resolve_at
from kfjob.observe.config import ObserveConfig
from kfjob.plan import Context
from kfjob.spec import names
from kfjob.spec.job import JobSpec
from kfjob.spec.source import load_spec

GOLDEN = sorted((Path(__file__).parents[2] / "golden" / "specs").glob("*.yaml"))
MORE = (
    "nodes: 3\nrendezvous: static\n",
    "nodes: 2\nlauncher: accelerate\n",
    "nodes: 2\nmaster: true\nrendezvous: etcd\nenv: {LOGLEVEL: WARNING}\n",
    "processes_per_node: 4\nprogress: 'done (?P<step>[0-9]+)'\n",
    "processes_per_node: auto\nenv: {LOGLEVEL: {secret: a, key: b}}\n",
)


def by_the_models(spec: JobSpec) -> ObserveConfig:
    processes, loglevel = spec.processes_per_node, spec.env.get("LOGLEVEL", "INFO")
    return ObserveConfig(
        workers=names.pod_names(spec.name, spec.nodes, master=spec.has_master),
        rendezvous=spec.rendezvous.backend,
        processes_per_node=processes if isinstance(processes, int) else None,
        expected_steps=spec.train.max_steps if spec.train else None,
        progress_pattern=spec.progress,
        trainer="kfjob" if spec.train else "",
        loglevel=loglevel if isinstance(loglevel, str) else "INFO",
    )


@pytest.mark.parametrize(
    "text", [*(path.read_text() for path in GOLDEN), *(f"name: a\nimage: b\ncommand: torchrun c.py\n{more}" for more in MORE)]
)
def test_both_say_the_same(text: str):
    loaded = load_spec(text)
    plan = resolve_at(loaded.spec, loaded.positions, Context(backend="kubernetes", launch="l"))
    assert observe_config.of_plan(plan) == by_the_models(loaded.spec)
    everything = loaded.spec.model_dump_json()  # what another program may have recorded: the defaults too
    assert observe_config.of_spec(everything) == by_the_models(loaded.spec)


def test_a_spec_of_another_version_goes_through_the_models(monkeypatch):
    monkeypatch.setattr(observe_config, "VERSION", 0)
    text = JobSpec(name="a", image="b", nodes=3, command=("c",)).model_dump_json()
    assert observe_config.of_spec(text).workers == ("a-worker-0", "a-worker-1", "a-worker-2")
