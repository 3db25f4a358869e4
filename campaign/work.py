"""Endless submissions of experiments by a client whose master is killed repeatedly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from campaign.cluster import POOLS, CampaignCluster
from resolute.client import Resolute
from resolute.errors import Unavailable
from resolute.wire.rest.enums import WireExperimentState
from resolute.wire.rest.experiments import GetExperimentsQuery
from support.live import client_of

Answer = TypeVar("Answer")

EVERYTHING = -1
OPEN = (
    WireExperimentState.ACTIVE,
    WireExperimentState.QUEUED,
    WireExperimentState.PULLING,
    WireExperimentState.STARTING,
    WireExperimentState.RUNNING,
)
LOOK_S = 0.3


class Work(threading.Thread):
    """Keeps more live experiments than slots. Call `close` before the cluster ends."""

    def __init__(self, cluster: CampaignCluster) -> None:
        super().__init__(name="work", daemon=True)
        self._cluster = cluster
        self._over = threading.Event()
        self._extra = threading.Event()
        self.asked: list[str] = []
        """Names of all submissions."""
        self.acknowledged: dict[str, int] = {}
        """Id by name of acknowledged submissions."""
        self.failure: BaseException | None = None

    def one_more(self) -> None:
        """Another upload is required, regardless of the number of live experiments."""
        self._extra.set()

    def close(self) -> None:
        """Returns when all submissions are acknowledged."""
        self._over.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        try:
            client = self._patiently(lambda: client_of(self._cluster.url, self._cluster.directory / "work"))
            with client:
                while not self._over.is_set():
                    self._top_up(client)
                    self._over.wait(LOOK_S)
        except BaseException as error:
            self.failure = error

    def _top_up(self, client: Resolute) -> None:
        query = GetExperimentsQuery(states=OPEN, limit=EVERYTHING)
        open_ = {e.name for e in self._patiently(lambda: client.experiments.page(query).experiments)}
        missing = 2 * POOLS - len(open_)
        if self._extra.is_set():
            self._extra.clear()
            missing = max(missing, 1)
        for _ in range(missing):
            self._submit(client)

    def _submit(self, client: Resolute) -> None:
        """Repeats a submission until it is acknowledged. A failed call may have succeeded on the master, so each retry first looks
        up the name."""
        name = f"work-{len(self.asked) + 1:05}"
        pool = 1 + len(self.asked) % POOLS
        self.asked.append(name)
        tried = False
        while name not in self.acknowledged:
            try:
                if tried and (known := self._known(client, name)) is not None:
                    self.acknowledged[name] = known
                    return
                tried = True
                self.acknowledged[name] = self._cluster.submit_work(client, name, pool).id
            except Unavailable:
                time.sleep(LOOK_S)

    def _known(self, client: Resolute, name: str) -> int | None:
        found = client.experiments.page(GetExperimentsQuery(name=name, limit=EVERYTHING)).experiments
        return next((each.id for each in found if each.name == name), None)

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        """Repeats a read until a master answers."""
        while True:
            try:
                return call()
            except Unavailable:
                time.sleep(LOOK_S)
