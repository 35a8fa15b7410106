"""The trainer with fp8 in a wider type, for smoke tests on a CPU: `python -m benchmarks.emulated_trainer ARGUMENTS`."""

from __future__ import annotations

import sys

from kfjob.trainer import float8
from kfjob.trainer.__main__ import main

if __name__ == "__main__":
    float8._emulates = True  # noqa: SLF001 -- users have no such switch, on purpose
    sys.exit(main(sys.argv[1:]))
