"""Everything that can fail before a launch starts, in one order for `submit` and `relaunch`: cheap checks before pushes."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.api.cluster_needs import find_missing_parts
from kfjob.api.images import own_pull_secret
from kfjob.api.images.check import check_plan_images
from kfjob.api.images.code_layer import CodeLayer, add_code_layer
from kfjob.api.local_data import find_local_problems
from kfjob.api.planning import Planned, plan_job
from kfjob.api.target import Target
from kfjob.base.common_types import Notify
from kfjob.base.errors import Problem
from kfjob.source.spec_text import LoadedSpec


def check_spec(
    loaded: LoadedSpec, target: Target, *, notify: Notify, start_folder: str = "", has_code: bool = False
) -> Planned:
    """Plan a job, and check its findings and its data on this machine. `notify` receives warnings.

    With `has_code`, the code of this folder is added to the image.

    Raises:
        SpecError: every problem of the spec.
    """

    def find_problems(planned: Planned) -> Iterator[Problem]:
        yield from find_missing_parts(planned, has_code=has_code)
        yield from find_local_problems(planned)

    planned = plan_job(loaded, target, start_folder=start_folder, check=find_problems)
    planned.check_findings(notify)
    return planned


def add_code(planned: Planned, loaded: LoadedSpec, code: CodeLayer, *, notify: Notify, dry_run: bool = False) -> Planned:
    """Push the code as a layer, and return the plan of the same launch with the image that has it.

    Raises:
        KfjobError: the code could not be pushed.
    """
    plan = planned.plan
    spec = add_code_layer(loaded.spec, plan, code, planned.target, notify=notify, dry_run=dry_run)
    return plan_job(LoadedSpec(spec, loaded.positions), planned.target, launch=plan.launch, start_folder=plan.start_folder)


def prepare_launch(planned: Planned, loaded: LoadedSpec, *, code: CodeLayer | None, notify: Notify) -> Planned:
    """Check what the launch needs outside of its spec, and return the plan to start.

    Raises:
        KfjobError: the code could not be pushed.
        NotFound, Refused: an image does not exist, or not for the nodes' architecture; or this machine lacks what the job
            needs.
    """
    if code:
        planned = add_code(planned, loaded, code, notify=notify)
    check_plan_images(planned.target, planned.plan, notify=notify)
    own_pull_secret.apply_pull_secret(planned.target, planned.plan)
    _check_machine(planned, notify)
    return planned


def _check_machine(planned: Planned, notify: Notify) -> None:
    """Check on the local backend that this machine can start the plan.

    `notify` receives the program that the job runs with, because PATH may have another than the user expects.
    """
    if planned.target.kind.runs_on_this_machine:
        requirements = planned.target.machine.check_requirements(planned.plan)
        for requirement in requirements:
            if requirement.problem:
                raise requirement.problem
        for requirement in requirements:
            if requirement.program:
                notify(f"the job runs with `{requirement.program}`")
