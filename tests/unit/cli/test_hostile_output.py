"""Every command prints what a hostile job reports without control characters and without secrets."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from kfjob.backends import folder
from kfjob.base.printable import is_clean
from kfjob.base.units import SECOND
from kfjob.cli.console import CleanConsole
from kfjob.cli.output import CleanStream, clean_output
from kfjob.joblog.events import Event, JobChanged, JobPhase, JobSnapshot, KubernetesEvent, LogLine, PodChanged, PodPhase
from kfjob.spec.job import JobSpec
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell, fake

__all__ = ["fake"]
ATTACK = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;owned\x1b\\\x9b31m\u202eevil\u2066\x08\x00\x7f\rforged"
PASSWORD, HUB, KEY = "tomato-soup", "hf_" + "aB1" * 12, "a1b2c3d4e5"
SECRETS = (PASSWORD, HUB, KEY)
LEAK = f"connect postgres://me:{PASSWORD}@db failed with {PASSWORD}, token {HUB}, api_key={KEY}"
SPEC = JobSpec(
    name="train", image="a:1", nodes=2, command=["torchrun", "train.py", "--api-key", KEY], env={"DB_PASSWORD": PASSWORD}
)


def make_events(attack: str, leak: str) -> tuple[Event, ...]:
    """Return the events of a job that fails, with `attack` and `leak` in every text."""
    return (
        script.job(JobPhase.RUNNING, reason=attack, message=f"{attack} {leak}"),
        script.pod(0, PodPhase.RUNNING, ready=True),
        script.pod(1, PodPhase.PENDING, reason=f"CrashLoopBackOff{attack}", message=f"{attack} {leak}", node=attack),
        *script.block(0, 0, 5),
        script.line(0, f"{attack} UserWarning: {leak}", 6),
        script.line(0, f"Traceback (most recent call last):{attack}", 7),
        script.line(0, f'  File "{attack}.py", line 5, in <module>', 7),
        script.line(0, f"RuntimeError: {leak} {attack}", 7),
        KubernetesEvent(
            kind="Pod", name="train-worker-1", reason=f"BackOff{attack}", message=f"{leak}{attack}", warning=True, uid="1"
        ),
        script.pod(0, PodPhase.FAILED, exit_code=1, reason=f"Error{attack}", message=f"{attack}{leak}"),
        script.job(JobPhase.FAILED, reason=f"Failed{attack}", message=f"{leak}{attack}", ended=script.START + 60 * SECOND),
    )


EVENTS = make_events(ATTACK, LEAK)
COMMANDS = [
    *("status JOB", "status JOB -o json", "diagnose JOB", "diagnose JOB -o json", "diagnose JOB --warnings"),
    *("diagnose JOB --warnings -o json", "master JOB", "master JOB -o json", "report JOB -o -", "logs JOB --first-error"),
]
LOGS = ["logs JOB", "logs JOB -o json", "logs JOB --timestamps", "logs JOB --color always"]


def check(kfjob: Shell, *, secrets: bool) -> None:
    for text in (kfjob.out, kfjob.err):
        assert is_clean(text), ascii(text)
        assert "\x1b" not in text
        assert not (secrets and [secret for secret in SECRETS if secret in text])


def write_folder(root: Path, events: tuple[Event, ...]) -> Path:
    """Write the job of the events as an archived job."""
    folder.make_private(root)
    pods = {event.pod: event for event in events if isinstance(event, PodChanged)}
    job = next(event for event in reversed(events) if isinstance(event, JobChanged))
    spec = SPEC.model_dump_json(exclude_defaults=True)
    snapshot = JobSnapshot(name="train", namespace="default", job=job, pods=tuple(pods.values()), spec=spec, image=ATTACK)
    folder.write_snapshot(root, snapshot)
    folder.write_events(root, [event for event in events if isinstance(event, KubernetesEvent)])
    for pod in pods:
        lines = [event.text for event in events if isinstance(event, LogLine) and event.pod == pod]
        path = folder.log_path(root, pod)
        path.parent.mkdir()
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogateescape")
    return root


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "hostile", EVENTS)


@pytest.mark.parametrize("command", COMMANDS)
def test_saved_job_is_shown_clean_and_without_secrets(kfjob: Shell, hostile_folder: Path, command: str):
    words = command.replace("JOB", "--from hostile").split()
    kfjob(*words)
    assert kfjob.out
    check(kfjob, secrets="logs" not in words)
    if "json" in words:
        json.loads(kfjob.out)


@pytest.mark.parametrize("command", LOGS)
def test_saved_logs_are_shown_clean(kfjob: Shell, hostile_folder: Path, command: str):
    assert kfjob(*command.replace("JOB", "--from hostile").split()) == 0
    assert "evil" in kfjob.out
    text = re.sub(r"\x1b\[[0-9;]*m", "", kfjob.out) if "always" in command else kfjob.out
    assert is_clean(text), ascii(text)


def test_raw_logs_for_a_program_keep_every_byte(kfjob: Shell, hostile_folder: Path):
    assert kfjob("logs", "--from", "hostile", "-o", "raw") == 0
    assert ATTACK in kfjob.out


LIVE = ["list", "list -o json", "watch JOB", "watch JOB -o json", "wait JOB", "stop JOB"]


@pytest.mark.parametrize("command", [*COMMANDS, *LIVE])
def test_job_of_a_cluster_is_shown_clean_and_without_secrets(kfjob: Shell, fake: FakeBackend, command: str):
    fake.play("train", *EVENTS, spec=SPEC.model_dump_json(exclude_defaults=True))
    words = command.replace("JOB", "train").split()
    kfjob(*words)
    assert kfjob.out + kfjob.err
    check(kfjob, secrets="logs" not in words)


def test_archived_logs_hold_no_secrets(kfjob: Shell, fake: FakeBackend, here: Path):
    fake.play("train", *EVENTS, spec=SPEC.model_dump_json(exclude_defaults=True))
    assert kfjob("stop", "train") == 0
    (log,) = (here / "state" / "archive").rglob("train-worker-0/*.log")
    text = log.read_text(encoding="utf-8")
    assert "connect postgres://me:[redacted]@db failed with [redacted], token [redacted], api_key=[redacted]" in text
    assert kfjob("relaunch", "train") == 0  # the archive is private, and keeps the spec
    assert PASSWORD in str(fake.jobs["default", "train"].snapshot.spec)


def test_spec_values_are_shown_clean_and_without_secrets(kfjob: Shell, fake: FakeBackend, here: Path):
    spec = SPEC.model_dump(mode="json", exclude_defaults=True)
    spec["env"] |= {"NOTE": f"{ATTACK[:-8]}{LEAK}".replace("\x00", ""), "HF_TOKEN": HUB}
    (here / "job.yaml").write_text(json.dumps(spec))
    for command in ("explain", "explain -o json", "validate", "explain --operator-env"):
        words = command.split()
        assert kfjob(words[0], "job.yaml", *words[1:]) == 0
        check(kfjob, secrets=True)
    for form in ("yaml", "json"):
        assert kfjob("render", "job.yaml", "-o", form) == 0
        assert is_clean(kfjob.out)
        assert PASSWORD in kfjob.out  # what is submitted
        assert "u202E" in kfjob.out or "u202e" in kfjob.out


@pytest.mark.parametrize("path", ["env.DB_PASSWORD", "env.NOTE"])
def test_message_about_the_environment_does_not_quote_the_value(kfjob: Shell, here: Path, path: str):
    (here / "job.yaml").write_text(f"name: train\nimage: a:1\ncommand: python a.py\nenv: {{{path[4:]}: [{PASSWORD}, 1]}}\n")
    assert kfjob("validate", "job.yaml") == 2
    assert path in kfjob.err
    assert PASSWORD not in kfjob.err


def test_error_does_not_quote_control_characters(kfjob: Shell, fake: FakeBackend, here: Path):
    for words in (["status", ATTACK.replace("\0", "")], ["--" + ATTACK], ["validate", "a" + ATTACK.replace("\0", "")]):
        assert kfjob(*words) != 0
        check(kfjob, secrets=False)


def test_terminal_keeps_colours_and_nothing_else():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    CleanStream(terminal).write("\x1b[31mred\x1b[0m\x1b[2J\x1b]0;t\x07")
    assert terminal.getvalue() == "\x1b[31mred\x1b[0m"


def test_live_display_cleans_text_and_moves_the_cursor_itself(capsys: pytest.CaptureFixture[str]):
    from rich.live import Live
    from rich.text import Text

    with clean_output():
        console = CleanConsole()
        console._force_terminal = True
        with Live(Text("one\ntwo"), console=console, auto_refresh=False) as live:
            console.print(Text(f"above {ATTACK}"))
            live.update(Text(ATTACK), refresh=True)
    text = capsys.readouterr().err
    assert "above " in text
    assert "\x1b[?25l" in text  # of the live display itself
    assert not any(part in text for part in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\x07", "\x7f"))
