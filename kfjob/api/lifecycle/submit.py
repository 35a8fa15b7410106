"""Submit a job: start it, unless its name is taken, or a job with the same spec runs already."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from kfjob.api.images.code_layer import CodeLayer
from kfjob.api.lifecycle.preparation import check_job, prepare_launch, use_offered_kind
from kfjob.api.lifecycle.replace import replace_launch
from kfjob.api.lifecycle.taken_name import NameState, decide_name, find_same_name, make_taken
from kfjob.api.prepared import JobSource, PreparedJob
from kfjob.api.reader import LiveReader, open_snapshot
from kfjob.api.target import Target
from kfjob.base.common_types import Notify, ignore_notice


class Submission(NamedTuple):
    """The launch that a submit returns."""

    reader: LiveReader
    is_new: bool
    """Whether the submit has started it; False if a job with the same spec ran already."""


def submit(
    source: JobSource,
    target: Target,
    *,
    code: CodeLayer | None = None,
    replace: bool = False,
    notify: Notify = ignore_notice,
) -> Submission:
    """Start the job of a source. `code` is added to its image; `replace` stops the launch that has its name now.

    A launch of the same user that has ended gives its name to the new one, and its logs are archived. If a job with the same
    spec runs already, it is returned, and nothing is started.

    Raises:
        SpecError: every problem of the job.
        AlreadyExists: a job with this name and another spec runs; or another user has submitted the launch that has the name,
            or it has no record of its spec and its user. Or another command has started the job in the meantime.
        NotFound, Refused: the image does not exist, or not for the nodes' architecture.
    """
    prepare = partial(check_job, source, notify=notify, code=code)
    start = partial(_submit, source=source, code=code, replace=replace, notify=notify)
    return use_offered_kind(prepare(target), prepare, start, notify)


def _submit(job: PreparedJob, source: JobSource, *, code: CodeLayer | None, replace: bool, notify: Notify) -> Submission:
    live = find_same_name(job)  # before anything that takes long, such as pushing code
    state = decide_name(live, job)
    if live and not replace and state in (NameState.SAME, NameState.TAKEN):
        if code or state is NameState.TAKEN:
            raise make_taken(live, job)
        notify(
            f"job `{live.name}` runs already with this spec (launch {live.launch}); nothing was started\n"
            f"hint: after a change of the program, `kfjob relaunch {live.name}` starts it again"
        )
        return Submission(open_snapshot(job.target, live), is_new=False)
    job = prepare_launch(job, source, code=code, notify=notify)
    if live and not replace:
        notify(f"the last launch of `{live.name}` has ended ({live.job.phase}), and goes to the archive")
    return Submission(replace_launch(job, live, notify=notify), is_new=True)
