"""Start a job from a spec, or change a live job in place."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import NamedTuple

from kfjob.api.images.code_layer import CodeLayer
from kfjob.api.lifecycle.name_holder import NameState, decide_name, find_holder, make_taken
from kfjob.api.lifecycle.preparation import check_spec, prepare_launch
from kfjob.api.lifecycle.replace import replace_launch
from kfjob.api.observe_config import read_observe_config
from kfjob.api.planning import Planned, plan_job
from kfjob.api.reader import LiveReader, make_ref
from kfjob.api.target import Target
from kfjob.base.common_types import Notify, ignore_notice
from kfjob.source.spec_text import LoadedSpec


class Submission(NamedTuple):
    """The launch that a submit returns."""

    reader: LiveReader
    is_new: bool
    """Whether the submit has started it; False if a job with the same spec ran already."""


def submit_loaded(
    loaded: LoadedSpec,
    target: Target,
    *,
    code: CodeLayer | None = None,
    replace: bool = False,
    notify: Notify = ignore_notice,
) -> Submission:
    """Start the job of a spec. `code` is added to its image; `replace` stops the launch that has its name now.

    A launch of the same user that has ended gives its name to the new one, and its logs are archived. If a job with the same
    spec runs already, it is returned, and nothing is started.

    Raises:
        SpecError: every problem of the spec.
        AlreadyExists: a job with this name and another spec runs; or another user has submitted the launch that has the name,
            or it has no record of its spec and its user. Or another command has started the job in the meantime.
        NotFound, Refused: the image does not exist, or not for the nodes' architecture.
    """
    planned = check_spec(loaded, target, notify=notify, has_code=code is not None)
    live = find_holder(planned)  # before anything that takes long, such as pushing code
    state = decide_name(live, planned)
    if live and not replace and state in (NameState.SAME, NameState.TAKEN):
        if code or state is NameState.TAKEN:
            raise make_taken(live, planned)
        notify(
            f"job `{live.name}` runs already with this spec (launch {live.launch}); nothing was started\n"
            f"hint: after a change of the program, `kfjob relaunch {live.name}` starts it again"
        )
        return Submission(LiveReader(planned.target, make_ref(planned.target, live), read_observe_config(live)), is_new=False)
    planned = prepare_launch(planned, loaded, code=code, notify=notify)
    if live and not replace:
        notify(f"the last launch of `{live.name}` has ended ({live.job.phase}), and goes to the archive")
    return Submission(replace_launch(planned.target, live, partial(start, planned, spec_file=loaded.file_record)), is_new=True)


def start(planned: Planned, *, spec_file: str) -> LiveReader:
    """Submit the plan to its backend, with the record of its spec's file.

    Raises:
        AlreadyExists: a job with this name exists; nothing was changed.
    """
    plan = dataclasses.replace(planned.plan, submitted_by=planned.target.settings.submitter, spec_file=spec_file)
    ref = planned.target.backend.submit(plan)
    config = plan.observe_config
    if ref.kind.runs_on_this_machine:  # its record also has the command that installs packages
        config = read_observe_config(planned.target.backend.get(ref.name, namespace=ref.namespace))
    return LiveReader(planned.target, ref, config)


def apply_loaded(loaded: LoadedSpec, target: Target, *, notify: Notify = ignore_notice) -> LiveReader:
    """Change the live job to the spec, where that is possible in place. The launch stays the same.

    Raises:
        NotFound: the job does not exist.
        Refused: the change needs a relaunch.
    """
    planned = plan_job(loaded, target)
    planned.check_findings(notify)
    live = planned.target.get_job(planned.plan.name)
    planned = plan_job(loaded, target, launch=live.launch)
    plan = dataclasses.replace(planned.plan, spec_file=loaded.file_record)
    return LiveReader(planned.target, planned.target.backend.apply(plan), planned.plan.observe_config)
