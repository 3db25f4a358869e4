"""One checkpoint: its files, where it came from and who works with it; downloaded and verified."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from aiohttp import web

from resolute.errors import InvalidInput, ResoluteError
from resolute.storage.verified import Verified
from resolute_master.api.auth.authorise import Action
from resolute_master.api.auth.fair_turns import FairTurns
from resolute_master.api.http.call import Call
from resolute_master.api.reading.finders import find_checkpoint, find_experiment
from resolute_master.api.resources.checkpoint_download import no_files, verify
from resolute_master.domain.checkpoint import Checkpoint
from resolute_web.page import Page, page

VERIFIED_AT_ONCE = 2
"""Each reads all of its files, through a thread of the master; people take turns."""

MOST_FILES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a comparison: `refusal` names the first difference, or why there was none."""

    verified: Verified | None = None
    refusal: str = ""


async def _find(call: Call) -> Checkpoint:
    text = call.text("uuid")
    try:
        return await find_checkpoint(call.api, str(UUID(text)))
    except ValueError:
        raise InvalidInput(f"'{text[:80]}' is no UUID of a checkpoint") from None


class Checkpoints:
    """The pages, and whose turn it is to have files compared."""

    def __init__(self) -> None:
        self._turns = FairTurns(VERIFIED_AT_ONCE)

    @property
    def pages(self) -> tuple[Page, ...]:
        at = "/det/checkpoints/{uuid}"
        return (
            Page("GET", at, Action.VIEW, _find, self._show),
            Page("POST", f"{at}/verify", Action.VIEW, _find, self._verify),
        )

    async def _show(self, call: Call, checkpoint: Checkpoint) -> web.Response:
        return await self._page(call, checkpoint, None)

    async def _verify(self, call: Call, checkpoint: Checkpoint) -> web.Response:
        async with self._turns.turn(call.caller.user.username):
            try:
                outcome = Outcome(verified=await verify(call, checkpoint))
            except ResoluteError as error:
                outcome = Outcome(refusal=str(error))
        return await self._page(call, checkpoint, outcome)

    async def _page(self, call: Call, checkpoint: Checkpoint, outcome: Outcome | None) -> web.Response:
        files = sorted((name, size) for name, size in checkpoint.resources.items() if not name.endswith("/"))
        return await page(
            call,
            "checkpoint.html",
            title=f"Checkpoint at step {checkpoint.steps_completed}",
            section="Experiments",
            topics=(f"trial:{checkpoint.trial_id}",),
            checkpoint=checkpoint,
            experiment=await find_experiment(call.api, checkpoint.experiment_id),
            files=files[:MOST_FILES],
            more=max(0, len(files) - MOST_FILES),
            total=len(files),
            outcome=outcome,
            reason=no_files(checkpoint),
        )
