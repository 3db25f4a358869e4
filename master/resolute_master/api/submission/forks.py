"""A fork: the displayed configuration of an experiment, submitted again. Masked secrets are replaced by the stored ones if the
caller has the right to use them."""

from __future__ import annotations

from typing import Any

from resolute.config import refuse_masks, with_stored_secrets
from resolute.errors import InvalidInput
from resolute.wire.rest.experiment_changes import CreateExperimentRequest
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, may
from resolute_master.api.reading.finders import find_experiment
from resolute_master.domain.experiment import Experiment


async def parent_of(call: Call, request: CreateExperimentRequest) -> Experiment | None:
    """The parent of a fork, whose code the fork runs."""
    if not request.parent_id:
        return None
    if request.model_definition:
        raise InvalidInput("modelDefinition: a fork (parentId) runs the code of its parent; send one of the two")
    return await find_experiment(call.api, request.parent_id)


async def with_secrets_of(call: Call, parent: Experiment, submitted: dict[str, Any]) -> dict[str, Any]:
    """The submitted configuration, with the parent's secrets in place of their masks."""
    if await may(call, Action.USE_SECRETS, parent):
        return with_stored_secrets(submitted, parent.config, call.api.config.security.secrets.names)
    advice = (
        f"the stored value of experiment {parent.id} may be used by its owner, the owner of its workspace and administrators: "
        "write a value of your own, or remove the key"
    )
    refuse_masks(submitted, "the experiment configuration", advice=advice)
    return submitted
