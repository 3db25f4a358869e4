"""The expected duration and cost of a search on its pool: the time of a unit of training comes from the request, or from earlier
runs."""

from __future__ import annotations

import asyncio
from statistics import median

from resolute.config.experiment import ExperimentConfig
from resolute.errors import InvalidInput, ResoluteError
from resolute.wire.rest.searching import SearchForecast
from resolute.wire.states import ExperimentState, TaskType
from resolute_master.api.http.call import Call
from resolute_master.api.queue.starts import CooperativeYield
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, JobId, PoolName, TaskId
from resolute_master.domain.job import Job
from resolute_master.forecast.present import present_pool
from resolute_master.forecast.search_estimate import SearchEstimate, expected
from resolute_master.searcher.method import SearchMethod
from resolute_master.store.base import ExperimentQuery, TrialQuery

EARLIER = 20
"""Number of the newest experiments of the same name that are read."""
LONGEST_UNIT_S = 1e7
"""Longest time that a unit may take: four months."""

ONE = {"batches": "batch", "epochs": "epoch", "records": "record", "units": "unit"}
"""Singular of the units of lengths."""

_UNKNOWN_UNIT = "how long one {unit} of training takes is unknown: {why}; give --seconds-per-unit"


async def forecast(
    call: Call, config: ExperimentConfig, method: SearchMethod, counts: str, seconds_per_unit: float | None
) -> SearchForecast:
    """The forecast of a search. `counts` is the unit of lengths. Unknown values are described in words and are no error."""
    unit = ONE.get(counts, counts)
    if seconds_per_unit is not None and not 0 < seconds_per_unit <= LONGEST_UNIT_S:
        raise InvalidInput(
            f"secondsPerUnit: {seconds_per_unit} must be more than 0 and at most {LONGEST_UNIT_S:.0f}; give the seconds that one "
            f"{unit} of training takes"
        )
    try:
        wanted = config.resources
        pool = PoolName(call.api.config.pool_for(wanted.resource_pool, wanted.slots_per_trial).pool_name)
    except ResoluteError as error:
        return SearchForecast(pool="", unknown=str(error))
    if seconds_per_unit is not None:
        basis = f"{seconds_per_unit:g} s for one {unit}, as given"
    else:
        found = await _measured(call, config.name or "", unit)
        if isinstance(found, str):
            return SearchForecast(pool=pool, unknown=_UNKNOWN_UNIT.format(unit=unit, why=found))
        seconds_per_unit, basis = found
    estimate = await _played(call, pool, method, wanted.slots_per_trial, seconds_per_unit)
    return SearchForecast(
        pool=pool,
        seconds_per_unit=seconds_per_unit,
        basis=f"{basis}; as if nothing else ran in pool {pool} and nothing were interrupted; results are drawn",
        hours=estimate.hours,
        hours_least=estimate.hours_least,
        hours_most=estimate.hours_most,
        dollars=estimate.dollars,
        dollars_least=estimate.dollars_least,
        dollars_most=estimate.dollars_most,
        machines=estimate.machines,
        unknown=estimate.unknown,
    )


async def _measured(call: Call, name: str, unit: str) -> tuple[float, str] | str:
    """Seconds per batch in earlier runs of the same experiment (by name and owner), and the number of these runs; otherwise the
    reason, in words."""
    if unit not in ("batch", "unit"):
        return f"earlier runs report batches, not {unit}s"
    if not name:
        return "the configuration has no name by which earlier runs could be found"
    store = call.api.store
    query = ExperimentQuery(name=name, owners=(int(call.caller.user.id),), limit=EARLIER, descending=True)
    seconds: list[float] = []
    for experiment in (await store.page_experiments(query)).rows:
        if experiment.name != name:
            continue
        for trial in (await store.page_trials(TrialQuery(experiment_id=experiment.id))).rows:
            if trial.state is not ExperimentState.COMPLETED or trial.run_id != 1 or not trial.steps_completed:
                continue
            for run in await store.allocations_of_task(trial.task_id):
                if run.ready_at is not None and run.ended_at is not None:
                    seconds.append((run.ended_at - run.ready_at).total_seconds() / trial.steps_completed)
    if not seconds:
        return f"no trial of an earlier experiment '{name}' has been trained in one run"
    return median(seconds), f"{median(seconds):.3g} s for one {unit}, the median of {len(seconds)} earlier trial(s)"


async def _played(call: Call, pool: PoolName, method: SearchMethod, slots: int, unit_s: float) -> SearchEstimate:
    now, user = call.api.clock.now(), call.caller.user
    job = Job(
        id=JobId("preview"),
        kind="EXPERIMENT",
        name="preview",
        owner=user.id,
        workspace_id=0,
        project_id=0,
        pool=pool,
        priority=call.api.engine.pools[pool].default_priority,
        weight=1.0,
        max_slots=None,
        submitted_at=now,
        queue_position=now.timestamp(),
    )
    template = Allocation(
        id=AllocationId("preview"),
        task_id=TaskId("preview"),
        task_type=TaskType.TRIAL,
        job_id=job.id,
        pool=pool,
        slots_needed=slots,
        requested_at=now,
    )
    yielding = CooperativeYield()
    state = present_pool(call.api.engine.memory, pool, now)
    try:
        return await asyncio.to_thread(
            expected, state, method, job=job, template=template, unit_s=unit_s, seed=0, yield_control=yielding
        )
    except asyncio.CancelledError:
        yielding.abandoned.set()
        raise
