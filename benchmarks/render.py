"""The cost to compile a spec to manifests, as ratios within one run.

    python benchmarks/render.py [rounds]

Goals: 1024 workers cost at most 1.2 times as much as 8 workers. Load, plan, compile and write cost at most 1.5 times as much as
`yaml.safe_load` and model validation. A second baseline uses libyaml, which kfjob also uses and which is ten times faster than
PyYAML's own parser; there kfjob's own work (0.1 to 0.2 ms) is as large as the baseline.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import yaml

from kfjob.api.planning import resolve_spec
from kfjob.kinds.pytorchjob.manifest import compile_manifests
from kfjob.plan import Context
from kfjob.source.spec_text import load_spec
from kfjob.source.yaml_writer import format_manifests
from kfjob.spec.job import JobSpec

SPECS = Path(__file__).parents[1] / "tests" / "golden" / "specs"
CONTEXT = Context(backend="kubernetes", launch="20261121-083000-gold")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def compile_spec(text: str) -> list[dict[str, object]]:
    loaded = load_spec(text, file="t.yaml")
    return compile_manifests(resolve_spec(loaded.spec, loaded.positions, CONTEXT))


def render_spec(text: str) -> str:
    return format_manifests(compile_spec(text), "yaml")


def validate_spec(text: str) -> JobSpec:
    return JobSpec.model_validate(yaml.safe_load(text))


def validate_spec_libyaml(text: str) -> JobSpec:
    return JobSpec.model_validate(yaml.load(text, Loader=LOADER))  # noqa: S506 - the safe loader in C


def ratio(work: Callable[[], object], baseline: Callable[[], object], rounds: int) -> float:
    """Return the median ratio; the two alternate, so that both see the same load."""
    return statistics.median(seconds(work) / seconds(baseline) for _ in range(rounds))


def seconds(work: Callable[[], object], times: int = 20) -> float:
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    text = (SPECS / "p5-trainer.yaml").read_text(encoding="utf-8")
    large = text.replace("nodes: 8", "nodes: 1024")
    assert large != text
    print(f"render, 1024 workers to 8: {ratio(partial(render_spec, large), partial(render_spec, text), rounds):.2f} (goal 1.2)")
    for name in ("smallest", "p5-trainer", "everything", "pod", "placement"):
        spec = (SPECS / f"{name}.yaml").read_text(encoding="utf-8")
        for parser, baseline in (
            ("safe_load", partial(validate_spec, spec)),
            ("libyaml", partial(validate_spec_libyaml, spec)),
        ):
            compile_ratio, render_ratio = (ratio(partial(work, spec), baseline, rounds) for work in (compile_spec, render_spec))
            goal = " (goal 1.5)" if parser == "safe_load" else ""
            cost = f"alone {seconds(baseline) * 1e3:.2f} ms"
            print(f"{name} over {parser}: {compile_ratio:.2f}{goal}, with YAML output {render_ratio:.2f}{goal}, {cost}")


main()
