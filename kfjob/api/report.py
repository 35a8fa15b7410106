"""Write a job as one HTML page. Each log is read once."""

from __future__ import annotations

import json
import time
from typing import Any

from kfjob import __version__
from kfjob.api.diagnose import examine
from kfjob.api.reader import JobReader
from kfjob.events import JobSnapshot
from kfjob.observe.log_spans import LogSpans
from kfjob.redaction import find_secret
from kfjob.report.page import Report, render_page

HIDDEN = "(not shown: it looks like a secret)"


def make_report(reader: JobReader) -> str:
    """Return the page as HTML: curves, timeline, diagnosis, pods and spec. It needs no other file.

    Raises:
        NotFound: the job is gone.
    """
    spans = LogSpans()
    examination = examine(reader, on_event=spans.feed)
    snapshot = reader.snapshot()
    return render_page(
        Report(
            name=snapshot.name,
            view=examination.view,
            diagnosis=examination.diagnosis,
            warnings=examination.warnings,
            omitted_warnings=examination.uncounted,
            spans=spans.by_pod,
            facts=_describe(reader, snapshot),
            spec=_format_spec(snapshot.spec),
            created=time.time_ns(),
            version=__version__,
        )
    )


def _describe(reader: JobReader, snapshot: JobSnapshot) -> dict[str, str]:
    backend = "" if reader.archived else str(reader.ref.backend)
    return {"namespace": snapshot.namespace, "launch": snapshot.launch, "image": snapshot.image, "backend": backend}


def _format_spec(spec: str | None) -> str:
    """Return the submitted spec as YAML, without values that look like secrets, because people share reports."""
    if not spec:
        return ""
    import yaml

    return str(yaml.safe_dump(_hide_secrets(json.loads(spec)), sort_keys=False, allow_unicode=True, width=110))


def _hide_secrets(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        variable = value.get("name") if isinstance(value.get("name"), str) else ""
        return {key: _hide_secrets(item, variable or "" if key == "value" else str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_hide_secrets(item) for item in value]
    return HIDDEN if isinstance(value, str) and find_secret(value, name) else value
