"""A job as one HTML page: its state, diagnosis, curves, timeline, pods and spec.

Pure: the same values give the same bytes. The page loads nothing. Text that a job printed cannot become markup or script:
the templates escape every value, and the page's Content-Security-Policy allows only its own style and script.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup
from msgspec import Struct, field

from kfjob.base.text import plural
from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.warnings import DistinctWarning
from kfjob.joblog.pods.log_spans import LogSpan
from kfjob.joblog.view.job_view import JobView
from kfjob.report import assets, sections
from kfjob.report.numbers import format_time
from kfjob.report.templating import make_environment
from kfjob.report.timeline import lay_out_timeline


class Report(Struct, frozen=True, kw_only=True):
    """Everything that a page shows."""

    name: str
    view: JobView
    diagnosis: Diagnosis
    warnings: Sequence[DistinctWarning] = ()
    omitted_warnings: int = 0  # lines with warnings that are not among `warnings`
    spans: Mapping[str, Mapping[str, LogSpan]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)  # where the job ran: namespace, launch, image
    spec: str = ""  # YAML
    created: int | None = None  # nanoseconds since the epoch
    version: str = ""  # kfjob's own


def render_page(report: Report, *, redact: Callable[[str], str] = str) -> str:
    """Return the page as HTML; `redact` removes secrets from every text of it."""
    view = report.view
    tables = (
        sections.make_pod_table(view),
        sections.make_event_table(view),
        sections.make_warning_table(report.warnings, report.omitted_warnings),
    )
    template = make_environment(redact).get_template("page.html")
    return template.render(
        report=report,
        policy=assets.make_policy(),
        style=Markup(assets.read_style()),  # noqa: S704 - a file of this package
        script=Markup(assets.read_script()),  # noqa: S704 - a file of this package
        badge=sections.choose_badge(view, report.diagnosis),
        headline=report.diagnosis.headline if report.diagnosis.headline != str(view.phase or "unknown") else "",
        facts={name: value for name, value in report.facts.items() if value},
        tiles=list(sections.make_tiles(view)),
        diagnosis=sections.make_diagnosis(report.diagnosis),
        charts=sections.make_charts(view.training),
        timeline=lay_out_timeline(view, report.diagnosis, report.spans),
        tables=[table for table in tables if table],
        footer=_footer(report),
    )


def _footer(report: Report) -> str:
    time = f" {format_time(report.created)}" if report.created else ""
    version = f" {report.version}" if report.version else ""
    return f"Created{time} by kfjob{version} from {plural(report.diagnosis.lines, 'log line')}."
