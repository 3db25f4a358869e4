"""All agent connections: one session an agent, effects delivered after each commit, the link's end made known."""

from __future__ import annotations

import asyncio
import hmac
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resolute.clock import Clock
from resolute.errors import FailedPrecondition, LimitExceeded, PermissionDenied, ResoluteError, Unavailable
from resolute.wire.agent_link import Hello, Welcome
from resolute_master.agents.container_spec import SpecRenderer
from resolute_master.agents.credentials import (
    cannot_prove_itself,
    digest_of,
    same,
    wrong_credential,
    wrong_token,
    wrong_token_of_machine,
)
from resolute_master.agents.session import AgentSession, Closed, Transport
from resolute_master.domain import effects as fx
from resolute_master.domain.agent import Agent, AgentKey
from resolute_master.domain.change import Change, kind_name
from resolute_master.domain.commands import LoseAgentLink
from resolute_master.domain.ids import AgentId, InstanceId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.machines import RecordBootFailure
from resolute_master.engine.engine import Engine
from resolute_master.engine.reporting import Reporting
from resolute_master.lifecycle.agents import name_of_machine, name_taken
from resolute_master.seal.join_token import JoinToken
from resolute_master.store.base import Store
from resolute_provisioner.model import Intent

FULL_INBOX_S = 0.5
"""Delay before the end of a link is submitted again when the engine's inbox is full."""

ORDERS_AT_ONCE = 4
"""Orders that are rendered in one turn of the event loop, over all links: signing tokens and writing a configuration down takes
the better part of a millisecond."""


BOOT_STAGE_CHARACTERS, BOOT_REPORT_CHARACTERS = 40, 1000
"""Limit of a machine's boot report; the last lines are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """The identity of the master, as shown to agents and clients."""

    cluster_id: str
    cluster_name: str
    master_id: str
    version: str


class AgentHub:
    """Sessions by agent id. `serve` runs one connection; everything else follows from commits."""

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        reporting: Reporting,
        renderer: SpecRenderer,
        identity: ClusterIdentity,
        clock: Clock,
        heartbeat_s: float,
        join_key: bytes,
        cluster_token: JoinToken,
    ) -> None:
        self._engine = engine
        self._store = store
        self._reporting = reporting
        self._renderer = renderer
        self._identity = identity
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._join_key = join_key
        self._cluster_token = cluster_token
        self._sessions: dict[AgentId, AgentSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(ORDERS_AT_ONCE)
        self._closing = False
        engine.on_commit(self._deliver)

    # -- connections -------------------------------------------------------------------------------------------

    async def serve(self, transport: Transport) -> None:
        """Until the connection ends."""
        displaced: list[AgentSession] = []
        session: AgentSession = AgentSession(
            transport,
            engine=self._engine,
            store=self._store,
            reporting=self._reporting,
            renderer=self._renderer,
            welcome=self._welcome,
            check=self._check_secret,
            admit=lambda hello: displaced.extend(self._admit(session, hello)),
            turns=self._turns,
            clock=self._clock,
        )
        try:
            registered = await self._register(session, transport)
            for older in displaced:
                self._beside(older.close())  # its peer may have vanished: that takes some time
            if registered:
                await session.send_orders(self._outstanding(session.agent_id))
                await session.run()
        finally:
            await self._leave(session, displaced)

    async def _register(self, session: AgentSession, transport: Transport) -> bool:
        try:
            if await session.register():
                return True
        except Closed:
            pass
        await transport.close()
        return False

    async def _leave(self, session: AgentSession, displaced: Sequence[AgentSession]) -> None:
        """The end of a session that a newer link of its agent has displaced is not reported: the agent is connected."""
        agent = session.agent_id
        if self._sessions.get(agent) is not session:
            return
        del self._sessions[agent]
        for incarnation in dict.fromkeys(gone.incarnation for gone in (session, *displaced)):
            await self._lost(agent, incarnation)

    async def _lost(self, agent: AgentId, incarnation: str) -> None:
        while agent not in self._sessions:
            try:
                await self._engine.submit(LoseAgentLink(agent=agent, incarnation=incarnation))
                return
            except LimitExceeded:
                await asyncio.sleep(FULL_INBOX_S)
            except ResoluteError:
                return  # the engine has stopped: its next start disconnects every agent

    def _admit(self, session: AgentSession, hello: Hello) -> Sequence[AgentSession]:
        """Make its session the agent's, once it has proved itself; answers the older one that it replaces, if there is one.

        From here on, before it is registered, so that of two concurrent links the later one stays.

        A link may be dead on one side only, so the same process, and a machine of a cloud pool, may always come again. Another
        process of an own machine may not while the first is connected: two machines may be copies of one disk.
        """
        if self._closing:
            raise Unavailable("the master is stopping")
        older = self._sessions.get(session.agent_id)
        if older is not None and not hello.instance_id and older.incarnation != hello.incarnation:
            raise FailedPrecondition(
                f"an agent '{hello.agent_id}' is connected already; give this one another agent_id, or end the other"
            )
        self._sessions[session.agent_id] = session
        return () if older is None else (older,)

    def _check_secret(self, hello: Hello) -> None:
        """Raises `PermissionDenied` for an agent that does not prove its identity. A caller without a valid token or credential
        gets no information about names and machines.
        """
        if not hello.instance_id:
            self._check_own_agent(hello)
        elif hello.credential:
            if not same(self._credential(hello.instance_id), hello.credential):
                raise wrong_credential(hello.instance_id)
        else:
            self.check_join_token(hello.instance_id, hello.join_token)

    def _check_own_agent(self, hello: Hello) -> None:
        """An agent that no cloud pool launched: by its own credential once it has joined, by the cluster's token before."""
        name = AgentId(hello.agent_id)
        state = self._engine.state
        key = state.get(AgentKey, name)
        if key is not None and same(key.digest, digest_of(hello.credential)):
            return
        if not self._cluster_token.fits(hello.join_token):
            raise wrong_token()
        if key is not None:
            raise name_taken(name)
        known = state.get(Agent, name)
        if state.get(Instance, InstanceId(name)) is not None or (known is not None and known.instance_id):
            raise name_of_machine(name)
        if not hello.credential:
            raise cannot_prove_itself(hello.version, self._identity.version)

    def check_join_token(self, instance_id: str, token: str) -> None:
        """Raises `PermissionDenied` for a token of another machine, or one that is no longer valid. A token is valid while the
        machine is needed and has not confirmed that it stored its own secret: so the copy in its user data is useless once its
        agent has joined.
        """
        if not same(self.join_token(instance_id), token):
            raise wrong_token_of_machine(instance_id)
        instance = self._engine.state.get(Instance, InstanceId(instance_id))
        if instance is None:
            return  # registration says that there is none
        if instance.join_token_spent_at is not None:
            raise PermissionDenied(f"join_token: it was used for '{instance_id}' before, and is good once")
        if instance.joined_at is None and instance.intent is Intent.STOP:
            raise PermissionDenied(f"join_token: machine '{instance_id}' is no longer needed: {instance.stop_reason}")

    async def boot_failed(self, instance_id: str, token: str, stage: str, said: str) -> None:
        """A machine reports that its agent cannot start. Raises `PermissionDenied` without its token."""
        self.check_join_token(instance_id, token)
        await self._engine.submit(
            RecordBootFailure(
                instance=InstanceId(instance_id),
                stage=stage[:BOOT_STAGE_CHARACTERS] or "unknown",
                message=" | ".join(said.split("\n"))[-BOOT_REPORT_CHARACTERS:].strip(" |"),
            )
        )

    def join_token(self, instance_id: str) -> str:
        """The one-machine token that proves that a machine is the one that was launched for `instance_id`."""
        return hmac.new(self._join_key, instance_id.encode(), "sha256").hexdigest()

    def _credential(self, instance_id: str) -> str:
        """The lasting secret of that machine. Derived, so that a master that is killed at any moment gives the same one."""
        return hmac.new(self._join_key, f"credential of {instance_id}".encode(), "sha256").hexdigest()

    def _credential_to_keep(self, agent: AgentId) -> str:
        """The machine's secret, sent until the machine confirms that it is stored; nothing for an agent that was started by
        hand."""
        known = self._engine.state.get(Agent, agent)
        instance = self._engine.state.get(Instance, known.instance_id) if known and known.instance_id else None
        if instance is None or instance.join_token_spent_at is not None:
            return ""
        return self._credential(instance.id)

    def _welcome(self, agent: AgentId, pool: PoolName, expected: Sequence[str]) -> Welcome:
        return Welcome(
            cluster_id=self._identity.cluster_id,
            cluster_name=self._identity.cluster_name,
            master_id=self._identity.master_id,
            heartbeat_s=self._heartbeat_s,
            lease_s=self._engine.pools[pool].agent_reconnect_wait_s,
            expected=tuple(expected),
            credential=self._credential_to_keep(agent),
        )

    # -- effects -----------------------------------------------------------------------------------------------

    def _outstanding(self, agent: AgentId) -> tuple[fx.Effect, ...]:
        return tuple(e for e in self._engine.outstanding_for(agent) if _agent_of(e) == agent)

    def _deliver(self, change: Change) -> None:
        by_agent: Mapping[AgentId, list[fx.Effect]] = defaultdict(list)
        for effect in change.outbox_added:
            agent = _agent_of(effect)
            if agent is not None:
                by_agent[agent].append(effect)
        for agent, effects in by_agent.items():
            session = self._sessions.get(agent)
            if session is not None:
                self._beside(session.send_orders(effects))
        for kind, key in change.deletes:
            if kind == _KEYS and (session := self._sessions.get(AgentId(str(key)))) is not None:
                self._beside(session.close())  # its credential was revoked

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop every link and accept no new one; agents reconnect to the next master."""
        self._closing = True
        await asyncio.gather(*(session.close() for session in self._sessions.values()))


_KEYS = kind_name(AgentKey)


def _agent_of(effect: fx.Effect) -> AgentId | None:
    return effect.agent if isinstance(effect, fx.StartContainer | fx.KillContainer) else None
