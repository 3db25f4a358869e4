"""A master with points in its commits, launches and uploads: `python -m campaign.master <orders> --config-file <file>`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from campaign.database import Named, NamedPostgres, PointedPostgres, PointedSqlite
from campaign.points import Points
from resolute.clock import Clock
from resolute.config import MasterConfig, PostgresDatabase
from resolute.config.pools import ResourcePool
from resolute_master.main import main as master_main
from resolute_master.pools.clouds import cloud_of
from resolute_master.store.base import Store
from resolute_master.store.sql.postgres_address import PostgresAddress
from resolute_provisioner.clouds.base import Cloud, Launched, LaunchRequest
from resolute_provisioner.clouds.driver import CloudPlace
from resolute_provisioner.clouds.local.cloud import LocalCloud, LocalCloudSettings
from resolute_provisioner.clouds.local.files import MachineFiles
from resolute_provisioner.clouds.records import Record


class PointedCloud(LocalCloud):
    """The local cloud, with points before, in and after a launch."""

    def __init__(self, settings: LocalCloudSettings, *, clock: Clock, points: Points) -> None:
        super().__init__(settings, clock=clock)
        self._points = points

    async def launch(self, request: LaunchRequest) -> Launched:
        self._points.reached("launch.asked")
        answer = await super().launch(request)
        self._points.reached("launch.answered")
        return answer

    def _create(self, request: LaunchRequest, gpus: tuple[str, ...]) -> tuple[MachineFiles, Record]:
        made = super()._create(request, gpus)
        self._points.reached("launch.recorded")
        return made


async def pointed_store(config: MasterConfig, points: Points) -> Store:
    """The store that the configuration names, with points."""
    await asyncio.to_thread(os.makedirs, config.cluster_state_dir, exist_ok=True)
    store: Named
    if config.sqlite_path is not None:
        sqlite = await PointedSqlite.open(config.sqlite_path)
        assert isinstance(sqlite, PointedSqlite)
        sqlite.points = points
        store = Named(sqlite)
    else:
        assert isinstance(config.db, PostgresDatabase)
        address = PostgresAddress(
            host=config.db.host,
            port=config.db.port,
            user=config.db.user,
            password=config.db.password,
            name=config.db.name,
        )
        postgres = await PointedPostgres.open(address)
        assert isinstance(postgres, PointedPostgres)
        postgres.points = points
        store = NamedPostgres(postgres)
    store.points = points
    return store


def main(arguments: Sequence[str]) -> int:
    orders = Path(arguments[0])
    points = Points(orders)

    def open_cloud(pool: ResourcePool, place: CloudPlace) -> Cloud | None:
        cloud = cloud_of(pool, place)
        assert isinstance(cloud, LocalCloud)
        command = (sys.executable, "-m", "campaign.machine", str(orders))
        return PointedCloud(replace(cloud.settings, machine_command=command), clock=place.clock, points=points)

    return master_main(arguments[1:], open_store=lambda config: pointed_store(config, points), open_cloud=open_cloud)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
