"""The watchdog on the real cluster: a crash loop, which the operator calls Running, is ended, and its logs are kept."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.facts import Space
from tests.cluster.shell import Shell

SPEC = """\
name: {name}
image: {image}
restarts: {{policy: OnFailure}}
watchdog: {{crashes: 1}}
command: [sh, -c, "echo what went wrong; exit 3"]
"""


def test_a_crash_loop_is_ended_and_its_logs_are_kept(space: Space, name: str, tmp_path: Path):
    kfjob = Shell(space, tmp_path)
    (tmp_path / "job.yaml").write_text(SPEC.format(name=name, image=space.facts.image))
    kfjob("submit", "job.yaml")
    said = kfjob("wait", name, "--timeout", "200", code=103)
    assert f"pod `{name}-worker-0` was restarted" in said
    assert "there is no job" in kfjob("diff", "job.yaml", code=3)
    assert "what went wrong" in kfjob("logs", name, "--pod", f"{name}-worker-0")
