"""The code of an experiment: its files, one of them with its syntax marked, and all of them as an archive."""

from __future__ import annotations

import asyncio

from aiohttp import web

from resolute.errors import NotFound
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call
from resolute_master.api.reading.finders import experiment_at
from resolute_master.domain.experiment import Experiment
from resolute_web.page import HEADERS, Page
from resolute_web.views.experiment import tabbed

_LIKELY = ("train.py", "main.py", "model_def.py", "trial.py", "README.md")
"""The file that is shown first by default."""


async def _archive(call: Call, experiment: Experiment) -> bytes:
    """Empty where the experiment has no code."""
    found = await call.api.store.get_context(experiment.context_hash) if experiment.context_hash else b""
    if found is None:
        raise NotFound("model definition of experiment", experiment.id)
    return found


async def code(call: Call, experiment: Experiment) -> web.Response:
    from resolute_web.model_code import entries_of, file_of  # and with it the lexers, which no start needs

    archive = await _archive(call, experiment)
    entries = await asyncio.to_thread(entries_of, archive) if archive else ()
    paths = [each.path for each in entries if not each.folder]
    wanted = call.request.query.get("file", "")
    path = wanted or next((name for name in _LIKELY if name in paths), paths[0] if paths else "")
    shown = await asyncio.to_thread(file_of, archive, path) if path and archive else None
    if wanted and shown is None:
        raise NotFound("file of the code", wanted, "the page of the code lists those that there are")
    return await tabbed(
        call, experiment, "code", "experiment_code.html", entries=entries, shown=shown, archive_bytes=len(archive)
    )


async def download(call: Call, experiment: Experiment) -> web.Response:
    archive = await _archive(call, experiment)
    if not archive:
        raise NotFound("model definition of experiment", experiment.id, "it was submitted without code")
    name = f"experiment-{experiment.id}-code.tar.gz"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return web.Response(body=archive, content_type="application/gzip", headers=headers)


_AT = "/det/experiments/{experimentId}/code"
_one = experiment_at("experimentId")

PAGES = (
    Page("GET", _AT, Action.VIEW, _one, code),
    Page("GET", f"{_AT}/archive", Action.VIEW, _one, download),
)
