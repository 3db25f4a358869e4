"""What a new machine is given so that it can join: pure rendering, no files, no environment.

A machine learns at boot where its master is, who it is and with which secret it may join. The local cloud writes
that as `agent.json` into the machine's directory; a cloud that takes user data renders it from the same value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineBoot:
    """What the master decides about a machine's agent, on every cloud alike."""

    master_url: str
    """`http(s)://host:port` as reached from the machine."""
    agent_id: str
    resource_pool: str
    instance_id: str
    join_token: str
    """Proves to the master that this machine was launched by it. A secret: never logged."""
    artificial_slots: int = 0
    """So many slots of a made-up device; 0 leaves the detection of devices to the agent."""
    slot_type: str = "auto"
    master_timeout_s: float = 600.0
    """A machine that cannot reach its master for so long ends itself."""
    agent_options: Mapping[str, object] = field(default_factory=dict)
    """Further keys of the agent's own settings; the fields above win over them."""


def render_agent_settings(boot: MachineBoot, *, state_dir: str, notice_file: str) -> str:
    """The text of `agent.json`. The two paths are the machine's own: where the agent keeps its state, and the file
    that appears when the machine is going to be interrupted."""
    decided = asdict(boot)
    options = decided.pop("agent_options")
    settings = {**options, **decided, "state_dir": state_dir, "notice_file": notice_file}
    return json.dumps(settings, indent=2, sort_keys=True) + "\n"
