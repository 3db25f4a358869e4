"""Every typed call of one login. Each resource is imported on first use, because a command needs one or two."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resolute.client.agents import Agents
    from resolute.client.checkpoints import Checkpoints
    from resolute.client.cluster import Cluster
    from resolute.client.experiments import Experiments
    from resolute.client.queue import Queue
    from resolute.client.session import Session
    from resolute.client.templates import Templates
    from resolute.client.trials import Trials
    from resolute.client.users import Users


class Api:
    """The resources of a master."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @cached_property
    def experiments(self) -> Experiments:
        from resolute.client.experiments import Experiments

        return Experiments(self.session)

    @cached_property
    def trials(self) -> Trials:
        from resolute.client.trials import Trials

        return Trials(self.session)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        from resolute.client.checkpoints import Checkpoints

        return Checkpoints(self.session)

    @cached_property
    def templates(self) -> Templates:
        from resolute.client.templates import Templates

        return Templates(self.session)

    @cached_property
    def agents(self) -> Agents:
        from resolute.client.agents import Agents

        return Agents(self.session)

    @cached_property
    def queue(self) -> Queue:
        from resolute.client.queue import Queue

        return Queue(self.session)

    @cached_property
    def cluster(self) -> Cluster:
        from resolute.client.cluster import Cluster

        return Cluster(self.session)

    @cached_property
    def users(self) -> Users:
        from resolute.client.users import Users

        return Users(self.session)
