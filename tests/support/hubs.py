"""The master's end of the agent link with an engine of the tests, and an agent's first messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

from resolute.clock import Clock
from resolute.wire.agent_link import PROTOCOL_VERSION, Hello
from resolute_master.agents.container_spec import SpecRenderer
from resolute_master.agents.hub import AgentHub, ClusterIdentity
from resolute_master.engine.engine import Engine
from resolute_master.engine.reporting import Reporting
from resolute_master.seal.join_token import JoinToken
from resolute_master.store.base import Store
from support.cluster import device

JOIN_TOKEN = "the-token-of-the-cluster"


@asynccontextmanager
async def a_hub(
    engine: Engine, store: Store, clock: Clock, *, token: str = "", join_token: str = JOIN_TOKEN
) -> AsyncIterator[AgentHub]:
    """`token` is the token of every task and user."""
    reporting = Reporting(store, engine)
    hub = AgentHub(
        engine=engine,
        store=store,
        reporting=reporting,
        renderer=SpecRenderer(task_token=lambda a, u: token, user_token=lambda a, u: token),
        identity=ClusterIdentity(cluster_id="c", cluster_name="test", master_id="m", version="0"),
        clock=clock,
        heartbeat_s=5.0,
        join_key=b"key",
        cluster_token=JoinToken(join_token, kept=None),
    )
    try:
        yield hub
    finally:
        await hub.close()
        await reporting.close()


def credential_of(name: str) -> str:
    """The credential that the machine of that name has created."""
    return sha256(name.encode()).hexdigest()


def a_hello(name: str = "agent-1", incarnation: str = "first", **changes: Any) -> Hello:
    """The Hello of a machine outside of cloud pools, with the cluster's token and a credential; with `instance_id` that of a
    machine of a cloud pool."""
    own = {} if "instance_id" in changes else {"join_token": JOIN_TOKEN, "credential": credential_of(name)}
    given: dict[str, Any] = {
        "protocol": PROTOCOL_VERSION,
        "version": "0",
        "agent_id": name,
        "resource_pool": "default",
        "incarnation": incarnation,
        "devices": (device(0), device(1)),
        "address": "10.0.0.1",
        **own,
    }
    return Hello(**{**given, **changes})
