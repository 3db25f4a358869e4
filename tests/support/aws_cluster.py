"""A real master whose pools buy from moto, and the booted machines of its launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from resolute_provisioner.clouds.aws.fake_ec2 import CREDENTIALS, IMAGE, REGION, Ec2Front, ec2_front
from support.ec2_bridge import Ec2Bridge, ec2_bridge
from support.live import LiveCluster


@dataclass(frozen=True, slots=True)
class AwsCluster:
    cluster: LiveCluster
    front: Ec2Front
    bridge: Ec2Bridge

    def tags_of(self, machine_id: str) -> dict[str, str]:
        return {tag["key"]: tag["value"] for tag in self.front.machines()[machine_id].get_tags()}

    def machine_of(self, instance_id: str) -> str:
        """EC2's id of a machine that was booted for one of the master's."""
        (found,) = [id_ for id_ in self.bridge.machines if instance_id in self.tags_of(id_).values()]
        return found

    def decisions(self) -> list[tuple[str, str, str]]:
        """Kind, subject and reason of each, oldest first."""
        return [(each.kind, each.subject, each.reason) for each in self.cluster.client.cluster.decisions(1000)]

    def told_of(self, what: str) -> bool:
        """Whether the master has taken such a notice of a machine."""
        return any(kind == "notice" and what in reason for kind, _, reason in self.decisions())

    def all_ended(self) -> bool:
        """Raises the error of the bridge, if it has failed."""
        states = {each.state for each in self.front.machines().values()}
        return not self.bridge.living() and states == {"terminated"}


@contextmanager
def aws_cluster(directory: Path, pools: Mapping[str, Mapping[str, Any]]) -> Iterator[AwsCluster]:
    """`pools` contains by name the keys of the provider beyond the common ones. The first pool is the default."""
    with (
        ec2_front(pending_s=0.5, ending_s=0.5) as front,
        ec2_bridge(front, directory / "machines") as (bridge, network),
    ):
        cluster = LiveCluster(directory / "cluster", host="0.0.0.0")
        shared = _provider(f"http://{network.host}:{cluster.port}")
        cluster.config["resource_pools"] = [
            {"pool_name": name, "shared_file_system": True, "provider": {**shared, **keys}}
            for name, keys in pools.items()
        ]
        first = next(iter(pools))
        defaults = {"default_aux_resource_pool": first, "default_compute_resource_pool": first}
        cluster.config["resource_manager"] = {"type": "agent", **defaults}
        cluster.config_file.write_text(yaml.safe_dump(cluster.config))
        cluster.environment |= CREDENTIALS
        cluster.environment |= {
            "AWS_ENDPOINT_URL_EC2": front.url,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9",  # This master does not run on EC2.
        }
        try:
            cluster.start()
            yield AwsCluster(cluster, front, bridge)
        except BaseException:
            print(cluster.master_log()[-4000:])
            print("\n".join(machine.log()[-2000:] for machine in bridge.machines.values()))
            raise
        finally:
            cluster.stop()
    assert cluster.left_over() == []


def _provider(master_url: str) -> dict[str, Any]:
    return {
        "type": "aws",
        "region": REGION,
        "image_id": IMAGE,
        "ssh_key_name": "key",
        "cpu_slots_allowed": True,
        "max_instances": 2,
        "max_idle_agent_period": "1s",
        "master_url": master_url,
        "agent_config_file_contents": {"container_runtime": "process"},
    }
