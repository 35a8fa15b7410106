"""The traceback of an unexpected error, and of any error with `--debug`, shows no credential."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CREDENTIAL = "x7Kq2mVb9TzR4wLp"
PROGRAM = """
import sys
import click
from kfjob.cli import commands
from kfjob.base.errors import KfjobError
from kfjob.redaction import remember_credential

def fail():
    remember_credential("{credential}")
    try:
        raise ValueError("Invalid header value b'Bearer {credential}\\\\n'")
    except ValueError as err:
        raise {error}("no answer to {credential}") from err

debug = click.Option(["--debug"], is_flag=True)
commands.LazyGroup.get_command = lambda *_: click.Command("list", callback=lambda debug: fail(), params=[debug])
sys.exit(commands.run_and_flush(["list", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(("error", "options"), [("OSError", ["--debug"]), ("RuntimeError", []), ("KfjobError", ["--debug"])])
def test_a_traceback_shows_no_credential(error, options):
    program = PROGRAM.format(credential=CREDENTIAL, error=error)
    argv = [sys.executable, "-c", program, *options]
    done = subprocess.run(argv, capture_output=True, text=True, env=os.environ, timeout=60, check=False)
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert "Bearer [redacted]" in done.stderr
    assert "no answer to [redacted]" in done.stderr
    assert CREDENTIAL not in done.stderr.replace(program, "")
