"""The watchdog on the real cluster ends a crash loop, although the job is Running, and archives its logs."""

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


def test_watchdog_ends_a_crash_loop_and_archives_its_logs(space: Space, name: str, tmp_path: Path):
    kfjob = Shell(space, tmp_path)
    (tmp_path / "job.yaml").write_text(SPEC.format(name=name, image=space.facts.image))
    kfjob("submit", "job.yaml")
    message = kfjob("wait", name, "--timeout", "200", code=103)
    assert f"pod `{name}-worker-0` was restarted" in message
    assert "there is no job" in kfjob("diff", "job.yaml", code=3)
    assert "what went wrong" in kfjob("logs", name, "--pod", f"{name}-worker-0")
