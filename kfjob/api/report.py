"""A job's report: everything is read once, and put on one page."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from kfjob import __version__
from kfjob.api.diagnose import examine
from kfjob.events import JobSnapshot
from kfjob.lint.secrets import find_secret
from kfjob.observe.log_spans import LogSpans
from kfjob.report.page import Report, render_page

if TYPE_CHECKING:
    from kfjob.api.run import Run

HIDDEN = "(not shown: it looks like a secret)"


def report(run: Run) -> str:
    """The page, as HTML.

    Raises:
        NotFound: the job is gone.
    """
    spans = LogSpans()
    examined = examine(run, also=spans.feed)
    snapshot = run.snapshot()
    return render_page(
        Report(
            name=snapshot.name,
            view=examined.view,
            diagnosis=examined.diagnosis,
            warnings=examined.warnings,
            omitted_warnings=examined.uncounted,
            spans=spans.by_pod,
            facts=_facts(run, snapshot),
            spec=_as_yaml(snapshot.spec),
            created=time.time_ns(),
            version=__version__,
        )
    )


def _facts(run: Run, snapshot: JobSnapshot) -> dict[str, str]:
    backend = "" if run.kept else str(run.ref.backend)
    return {"namespace": snapshot.namespace, "launch": snapshot.launch, "image": snapshot.image, "backend": backend}


def _as_yaml(spec: str | None) -> str:
    """The submitted spec for people. A report is handed on, so what looks like a secret is left out."""
    if not spec:
        return ""
    import yaml

    return str(yaml.safe_dump(_shown(json.loads(spec)), sort_keys=False, allow_unicode=True, width=110))


def _shown(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        named = value.get("name") if isinstance(value.get("name"), str) else ""
        return {key: _shown(one, named or "" if key == "value" else str(key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_shown(one) for one in value]
    return HIDDEN if isinstance(value, str) and find_secret(value, name) else value
