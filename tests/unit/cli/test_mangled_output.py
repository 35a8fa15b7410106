"""Every exit of kfjob redacts secrets with terminal sequences in them: commands, JSON, reports, archives and messages."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from kfjob.cli.commands import run
from kfjob.cli.console import CleanConsole
from kfjob.cli.output import CleanStream, clean_output, hide_secrets
from kfjob.redaction import REDACTED, Redactor
from kfjob.report.templating import make_environment
from tests.fakes.backend import FakeBackend
from tests.unit.api.conftest import Shell, fake
from tests.unit.cli.test_hostile_output import COMMANDS, LIVE, SPEC, make_events, write_folder
from tests.unit.mangled import DISGUISES, PASSWORD, TOKEN, disguise, shows_secret

__all__ = ["fake"]
LINES = (f"DB_PASS={PASSWORD}", f"api_key: '{PASSWORD}'", f"--token {PASSWORD}", f"x://me:{PASSWORD}@db", f"HF={TOKEN}")
FORMS = [disguise(LINES[index % len(LINES)], mark) for index, mark in enumerate(DISGUISES)]
LEAKS = [" and ".join(FORMS[start : start + 8]) for start in range(0, len(FORMS), 8)]
SHOWN = [command for command in (*COMMANDS, *LIVE) if not command.startswith("logs")]


def check(kfjob: Shell) -> None:
    for text in (kfjob.out, kfjob.err):
        assert not shows_secret(text), ascii(text)
        if text.startswith(("{", "[")):
            for line in text.splitlines() if text.startswith('{"kind"') else [text]:
                assert not shows_secret(str(json.loads(line))), ascii(line)


@pytest.mark.parametrize("command", SHOWN)
def test_command_shows_no_mangled_secret(kfjob: Shell, fake: FakeBackend, command: str, capsys: pytest.CaptureFixture[str]):
    for number, leak in enumerate(LEAKS):
        fake.play(f"train{number}", *make_events("", leak), spec=SPEC.model_dump_json(exclude_defaults=True))
        run(command.replace("JOB", f"train{number}").split())
        kfjob.out, kfjob.err = capsys.readouterr()
        assert kfjob.out + kfjob.err
        check(kfjob)


def test_saved_job_shows_no_mangled_secret(kfjob: Shell, tmp_path: Path):
    for number, leak in enumerate(LEAKS):
        folder = write_folder(tmp_path / str(number), make_events("", leak))
        for command in ("status", "diagnose", "diagnose -o json", "report -o -"):
            kfjob(*command.split(), "--from", str(folder))
            assert "Error" in kfjob.out
            check(kfjob)


def test_archive_holds_no_mangled_secret(kfjob: Shell, fake: FakeBackend, here: Path):
    for number, leak in enumerate(LEAKS):
        fake.play(f"train{number}", *make_events("", leak))
        assert kfjob("stop", f"train{number}") == 0
    files = [file for file in (here / "state" / "archive").rglob("*") if file.is_file()]
    texts = [file.read_text(encoding="utf-8") for file in files]
    assert sum(REDACTED in text for text in texts) >= 3 * len(LEAKS)  # the log, the events and the state of each job
    assert not any(shows_secret(text) for text in texts)


def test_error_message_and_explanation_show_no_mangled_secret(kfjob: Shell, fake: FakeBackend, here: Path):
    for leak in (form.replace("\0", "") for form in FORMS):
        for words in (["status", leak], [f"--{leak}"], ["validate", leak], ["list", "-o", leak]):
            assert kfjob(*words) != 0
            check(kfjob)
        spec = {"name": "a", "image": "a:1", "command": ["python", "a.py", leak], "env": {"NOTE": leak}, "nodes": leak}
        (here / "job.yaml").write_text(json.dumps(spec))
        assert kfjob("validate", "job.yaml") == 2
        check(kfjob)
        (here / "job.yaml").write_text(json.dumps(spec | {"nodes": 2}))
        for words in (["explain", "job.yaml"], ["explain", "job.yaml", "-o", "json"]):
            kfjob(*words)
            check(kfjob)


@pytest.mark.parametrize("form", FORMS, ids=ascii)
def test_template_redacts_before_it_divides_a_text(form):
    template = make_environment(Redactor().text).from_string("{{ text }} {{ text | prose }}")
    assert not shows_secret(template.render(text=form))
    assert "tomato" not in template.render(text="the variable `DB_PASSWORD`=`tomatosoup` is wrong")


def test_live_display_redacts_before_it_wraps_and_cuts(capsys: pytest.CaptureFixture[str]):
    grid = Table.grid()
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=18)
    for form in FORMS:
        grid.add_row(Text(form))
    with clean_output():
        hide_secrets(["ordinary-words"])
        console = CleanConsole()
        console.width = 20
        console.print(Group(*map(Text, FORMS), grid, Text("text with ordinary-words")))
    text = capsys.readouterr().err
    assert not shows_secret(text.replace("\n", ""))
    assert "ordinary-words" not in text.replace("\n", "")
    assert "redacted" in text


def test_stream_redacts_before_it_cleans():
    for form in FORMS:
        out = io.StringIO()
        CleanStream(out, Redactor()).write(form)
        assert not shows_secret(out.getvalue())
