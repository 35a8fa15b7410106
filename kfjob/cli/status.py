"""The command `status`."""

from __future__ import annotations

import time

import click
from msgspec import to_builtins

from kfjob.cli.completion import JOB
from kfjob.cli.open_reader import check_has_pods, name_pod, open_reader
from kfjob.cli.options import Settings, from_option, output_option, progress_option, target_options
from kfjob.cli.output import colour_states, print_json


@click.command()
@click.argument("job", required=False, type=JOB)
@from_option
@progress_option
@output_option("text", "name", "json")
@target_options
def status(*, job: str | None, folder: str | None, pattern: str | None, output: str, settings: Settings) -> None:
    """Show the state of a job: its pods, its training progress, and the pod that prints it.

    `-o name` prints each pod as kubectl takes it: `pod/NAME`.
    """
    from kfjob.api.reader import describe_ref, name_job
    from kfjob.api.view import read_view
    from kfjob.cli.view_json import view_json
    from kfjob.cli.view_text import status_text

    reader = open_reader(job, folder, settings, pattern=pattern)
    if output == "name":
        check_has_pods(reader)
        snapshot = reader.snapshot()
        pods = (snapshot.store, *snapshot.pods) if snapshot.store else snapshot.pods
        click.echo("".join(f"{name_pod(pod.pod)}\n" for pod in pods), nl=False)
        return
    view = read_view(reader, with_events=True)
    diagnosis = None
    if view.phase == "Failed" or view.is_end_unknown or view.remark:
        from kfjob.api.diagnose import examine

        diagnosis = examine(reader).diagnosis
    if output == "json":
        cause = diagnosis.first_cause if diagnosis and diagnosis.explained else None
        answer = describe_ref(reader.ref) | view_json(view) | {"cause": to_builtins(cause)}
        if diagnosis:
            answer["headline"] = diagnosis.headline
        if diagnosis and diagnosis.remark:
            answer["last_lines"] = dict(diagnosis.last_lines)
        print_json(answer, indent=2)
    else:
        now = reader.snapshot().observed or time.time_ns()
        text = status_text(view, name=reader.ref.name, source=name_job(reader), now=now, diagnosis=diagnosis)
        click.echo(colour_states(text))
