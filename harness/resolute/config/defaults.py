"""Defaults of a cluster for keys that an experiment omits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute.clock import Clock
from resolute.config.master import MasterConfig
from resolute.ids import IdSource

# Plain words of similar weight: a generated name is only there to tell two experiments apart.
_FIRST = ("amber", "bold", "brisk", "calm", "clear", "deep", "eager", "fair", "gentle", "keen", "lively", "mild",
          "noble", "quiet", "rapid", "steady")  # fmt: skip
_SECOND = ("autumn", "blue", "coral", "dawn", "east", "frost", "golden", "green", "indigo", "jade", "north", "rose",
           "silver", "south", "violet", "west")  # fmt: skip
_THIRD = ("badger", "crane", "dolphin", "eagle", "falcon", "gecko", "heron", "ibex", "jackal", "koala", "lynx",
          "marten", "newt", "otter", "puffin", "raven")  # fmt: skip


def generated_name(kind: str, ids: IdSource) -> str:
    """A name such as `Experiment (calm-north-otter)`."""
    return f"{kind} ({'-'.join(words[ids.bits(4)] for words in (_FIRST, _SECOND, _THIRD))})"


def experiment_defaults(master: MasterConfig, raw: Mapping[str, Any], *, ids: IdSource, clock: Clock) -> dict[str, Any]:
    """The configuration that belongs under `raw`, for `parse_experiment(raw, defaults=...)`.

    It holds the cluster's task defaults of the pool that `raw` names, its checkpoint storage, the priority of the
    pool's scheduler, a name and a seed. Raises InvalidInput when the pool does not exist; other errors in `raw` are
    left to `parse_experiment`.
    """
    resources = raw.get("resources")
    asked = resources if isinstance(resources, Mapping) else {}
    name, slots = asked.get("resource_pool"), asked.get("slots_per_trial")
    has_slots = slots != 0
    pool = master.pool_for(name if isinstance(name, str) else "", 1 if has_slots else 0)
    defaults = master.task_defaults_of(pool).as_defaults(has_slots=has_slots)
    scheduler = master.scheduler_of(pool)
    defaults["resources"] = {**defaults.get("resources", {}), "priority": scheduler.default_priority}
    if master.checkpoint_storage is not None:
        defaults["checkpoint_storage"] = master.checkpoint_storage.model_dump(mode="json")
    defaults["name"] = generated_name("Experiment", ids)
    defaults["reproducibility"] = {"experiment_seed": int(clock.now().timestamp())}
    return defaults
