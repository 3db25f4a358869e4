"""The notes of an experiment, written in a page of their own: the experiment's page reads itself again while it is open."""

from __future__ import annotations

from aiohttp import web

from resolute.errors import FailedPrecondition
from resolute.wire.rest.experiment_changes import PatchExperiment
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call
from resolute_master.api.reading.finders import experiment_at
from resolute_master.api.resources.experiments import patch
from resolute_master.domain.experiment import Experiment
from resolute_web.actions import closed_place, refusal_of
from resolute_web.forms import asking, read_form
from resolute_web.page import Page, page, see


async def edit(call: Call, experiment: Experiment) -> web.Response:
    return await _form(call, experiment, experiment.notes)


async def _form(call: Call, experiment: Experiment, text: str, error: str = "", status: int = 200) -> web.Response:
    return await page(
        call,
        "notes.html",
        title=f"Notes on experiment {experiment.id}",
        section="Experiments",
        experiment=experiment,
        text=text,
        error=error,
        refusal=closed_place(call, experiment) or await refusal_of(call, Action.CONTROL_EXPERIMENT, experiment),
        status=status,
    )


async def write(call: Call, experiment: Experiment) -> web.Response:
    """By the call of the API. What someone else has written meanwhile is not overwritten: both are shown."""
    form = await read_form(call)
    text, before = (form.text(name).replace("\r\n", "\n") for name in ("notes", "before"))
    if experiment.notes != before:
        error = FailedPrecondition("the notes have changed meanwhile; your text is below, followed by the stored text")
        return await _form(call, experiment, text, str(error), 409)
    await patch(asking(call, PatchExperiment(notes=text)), experiment)
    return see(f"/det/experiments/{experiment.id}")


_one = experiment_at("experimentId")
_AT = "/det/experiments/{experimentId}/notes"

PAGES = (
    Page("GET", _AT, Action.VIEW, _one, edit),
    Page("POST", _AT, Action.CONTROL_EXPERIMENT, _one, write),
)
