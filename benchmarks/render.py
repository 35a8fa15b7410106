"""What it costs to make manifests of a spec, as ratios within one run.

    python benchmarks/render.py [rounds]

Goals: 1024 workers cost at most 1.2 times what 8 do; reading with positions, planning, compiling and writing the manifests cost
at most 1.5 times what `yaml.safe_load` and validating the model alone do. The same is shown against libyaml's parser, which is
what kfjob reads with and ten times the speed of PyYAML's own: there, what kfjob adds (0.1 to 0.2 ms) is as large as what it is
compared with.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import yaml

from kfjob.api.specs.render import as_text, resolve_at
from kfjob.compile.pytorchjob import compile_manifests
from kfjob.plan import Context
from kfjob.spec.job import JobSpec
from kfjob.spec.source import load_spec

SPECS = Path(__file__).parents[1] / "tests" / "golden" / "specs"
CONTEXT = Context(backend="kubernetes", launch="20261121-083000-gold")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def compiled(text: str) -> list[dict[str, object]]:
    loaded = load_spec(text, file="t.yaml")
    return compile_manifests(resolve_at(loaded.spec, loaded.positions, CONTEXT))


def written(text: str) -> str:
    return as_text(compiled(text), "yaml")


def bare(text: str) -> JobSpec:
    return JobSpec.model_validate(yaml.safe_load(text))


def bare_libyaml(text: str) -> JobSpec:
    return JobSpec.model_validate(yaml.load(text, Loader=LOADER))  # noqa: S506 - a safe one, in C


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> float:
    """The median over rounds of the two in turn, so that both meet the same neighbours."""
    return statistics.median(seconds(ours) / seconds(theirs) for _ in range(rounds))


def seconds(work: Callable[[], object], times: int = 20) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    text = (SPECS / "p5-trainer.yaml").read_text(encoding="utf-8")
    large = text.replace("nodes: 8", "nodes: 1024")
    assert large != text
    print(f"render, 1024 workers to 8: {ratio(partial(written, large), partial(written, text), rounds):.2f} (goal 1.2)")
    for name in ("smallest", "p5-trainer", "everything", "pod", "placement"):
        spec = (SPECS / f"{name}.yaml").read_text(encoding="utf-8")
        for parser, alone in (("safe_load", partial(bare, spec)), ("libyaml", partial(bare_libyaml, spec))):
            plain, whole = (ratio(partial(work, spec), alone, rounds) for work in (compiled, written))
            goal = " (goal 1.5)" if parser == "safe_load" else ""
            cost = f"alone {seconds(alone) * 1e3:.2f} ms"
            print(f"{name} over {parser}: {plain:.2f}{goal}, with the manifests written as YAML {whole:.2f}{goal}, {cost}")


main()
