"""A master with another address of Google Cloud: `python -m support.gcp_master <url> --config-file <file>`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from google.auth.credentials import AnonymousCredentials

from resolute.config.pools import ResourcePool
from resolute_master.main import main as master_main
from resolute_master.pools.clouds import cloud_of
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.driver import CloudPlace
from resolute_provisioner.clouds.gcp.configuration import GcpProvider
from resolute_provisioner.clouds.gcp.driver import gcp_cloud


def main(arguments: Sequence[str]) -> int:
    url, *own = arguments

    def open_cloud(pool: ResourcePool, place: CloudPlace) -> Cloud | None:
        if not isinstance(pool.provider, GcpProvider):
            return cloud_of(pool, place)
        nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
        return gcp_cloud(pool, pool.provider, place.wheel(), place.clock, endpoint=url, credentials=nobody)

    return master_main(own, open_cloud=open_cloud)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
