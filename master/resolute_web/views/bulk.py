"""One action on the experiments that are selected in the list: each is authorised, done or refused by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from aiohttp import web

from resolute.errors import FailedPrecondition, InvalidInput, ResoluteError
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, allow, nothing, number_in
from resolute_master.api.reading.finders import find_experiment
from resolute_master.domain.experiment import Experiment
from resolute_web import actions
from resolute_web.forms import read_form
from resolute_web.page import Page, page, see
from resolute_web.views.login import inside
from resolute_web.words import plural

MOST = 500
COMPARE = "compare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`refusal` is empty where it was done."""

    id: int
    name: str
    refusal: str = ""


async def act(call: Call, _: None) -> web.Response:
    form = await read_form(call)
    ids = sorted({number_in("experiment", text) for text in form.fields.get("experiment", ())})
    if len(ids) > MOST:
        raise InvalidInput(f"experiment: {len(ids)} are over the limit of {MOST} at once; tick fewer")
    back, word = inside(form.text("back")), form.text("do")
    if not ids:
        return see(back)
    if word == COMPARE:
        return see(f"/det/compare?{urlencode([('experiment', id_) for id_ in ids])}")
    if word not in actions.BY_NAME:
        raise InvalidInput(f"do: '{word[:80]}' is no action; use one of {', '.join((*actions.BY_NAME, COMPARE))}")
    verb = actions.BY_NAME[word]
    if verb.question and form.text("sure") != "yes":
        return await _asked(call, verb, ids, back)
    results = [await _done(call, verb, id_) for id_ in ids]
    return await page(
        call,
        "bulk.html",
        title=f"{verb.label} {plural(len(ids), 'experiment')}",
        section="Experiments",
        verb=verb,
        results=results,
        back=back,
        asks=False,
    )


async def _asked(call: Call, verb: actions.Verb, ids: Sequence[int], back: str) -> web.Response:
    """Before what cannot be undone: of which it will be done, and of which not, and why."""
    results = []
    for id_ in ids:
        experiment = await find_experiment(call.api, id_)
        results.append(_result(experiment, await _refusal(call, verb, experiment)))
    title = f"{verb.label} {plural(sum(not each.refusal for each in results), 'experiment')}?"
    return await page(
        call, "bulk.html", title=title, section="Experiments", verb=verb, results=results, back=back, asks=True
    )


async def _refusal(call: Call, verb: actions.Verb, experiment: Experiment) -> str:
    return await actions.reason_of(call, verb, experiment)


async def _done(call: Call, verb: actions.Verb, id_: int) -> Result:
    try:
        experiment = await find_experiment(call.api, id_)
    except ResoluteError as error:
        return Result(id=id_, name="", refusal=str(error))
    try:
        if why := verb.unfit(experiment):
            raise FailedPrecondition(why)
        await allow(call, verb.action, experiment)
        await verb.do(call, experiment)
    except ResoluteError as error:
        return _result(experiment, str(error))
    return _result(experiment)


def _result(experiment: Experiment, refusal: str = "") -> Result:
    return Result(id=experiment.id, name=str(experiment.config["name"]), refusal=refusal)


PAGES = (Page("POST", "/det/experiments/bulk", Action.BULK, nothing, act),)
