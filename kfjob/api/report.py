"""Write a job as one HTML page. Each log is read once."""

from __future__ import annotations

import time

from kfjob.api.diagnose import examine
from kfjob.api.reader import JobReader
from kfjob.api.secrets import find_secrets
from kfjob.base.parsing import ParseError, parse_json
from kfjob.base.version import __version__
from kfjob.joblog.events import JobSnapshot
from kfjob.joblog.pods.log_spans import LogSpans
from kfjob.redaction import Redactor
from kfjob.report.page import Report, render_page
from kfjob.source.yaml_writer import write_yaml


def make_report(reader: JobReader) -> str:
    """Return the page as HTML: curves, timeline, diagnosis, pods and spec. It needs no other file.

    Raises:
        NotFound: the job is gone.
    """
    spans = LogSpans()
    examination = examine(reader, on_event=spans.feed)
    snapshot = reader.snapshot()
    redactor = Redactor(find_secrets(snapshot))
    return render_page(
        Report(
            name=snapshot.name,
            view=examination.view,
            diagnosis=examination.diagnosis,
            warnings=examination.warnings,
            omitted_warnings=examination.uncounted,
            spans=spans.by_pod,
            facts=_describe(reader, snapshot),
            spec=_format_spec(snapshot.spec, redactor),
            created=time.time_ns(),
            version=__version__,
        ),
        redact=redactor.text,
    )


def _describe(reader: JobReader, snapshot: JobSnapshot) -> dict[str, str]:
    backend = "" if reader.archived else str(reader.ref.backend)
    return {"namespace": snapshot.namespace, "launch": snapshot.launch, "image": snapshot.image, "backend": backend}


def _format_spec(spec: str | None, redactor: Redactor) -> str:
    """Return the submitted spec as YAML without secrets, because people share reports."""
    if not spec:
        return ""
    try:
        return write_yaml([redactor.value(parse_json(spec))], width=110)
    except ParseError:  # kfjob did not write it
        return ""
