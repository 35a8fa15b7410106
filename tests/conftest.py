import gc
import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

from kfjob.redaction import known
from tests import wheels

# the images that tests name are in no registry: a submit that asked for them would wait for the network and say so
os.environ["KFJOB_IMAGE_CHECK"] = "0"

# tests run side by side and their models are tiny: more threads would mostly wait for each other, and use a core for it
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # more would be processes, which import torch first

# machines are shared: how long one example takes says nothing; what hangs is ended by pytest-timeout
settings.register_profile("kfjob", deadline=None)
settings.load_profile("kfjob")

# A shell script starts its background commands with SIGINT ignored and nohup ignores SIGHUP, and so would every program that a
# test starts. A handler here, even one that does nothing, gives those programs the default again.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_finish() -> None:
    """Exempt the thousands of tests, and all that is imported, from garbage collection: each full one would visit them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def forget_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process remembers its credentials, and other tests use the same words."""
    monkeypatch.setattr(known, "_CREDENTIALS", known._Credentials())


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return wheels.build_wheel(tmp_path_factory.mktemp("wheel"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long the tests of each folder took, their fixtures included."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = Path(report.nodeid.partition("::")[0]).parts[1]
                seconds[folder] += report.duration
    if not seconds:
        return
    parts = sorted(seconds.items(), key=lambda item: -item[1])
    terminalreporter.write_line("time per folder: " + ", ".join(f"{folder} {duration:.0f} s" for folder, duration in parts))
