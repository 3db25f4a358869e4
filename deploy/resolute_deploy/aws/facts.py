"""The parts of a master's configuration that are specific to AWS, from the outputs of Terraform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ENGINE = "command -v dockerd >/dev/null || { apt-get update -q && apt-get install -q -y docker.io; }\n"
"""GPU images include Docker; the image of the pool for work without slots does not."""


class AwsFacts:
    """Obeys `Facts`."""

    def storage(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        storage = {"type": "s3", "bucket": facts["bucket"]}
        return storage | ({"endpoint_url": facts["endpoint_url"]} if facts["endpoint_url"] else {})

    def provider(self, facts: Mapping[str, Any], pool: Mapping[str, Any]) -> dict[str, Any]:
        agents = facts["agents"]
        return {
            "type": "aws",
            "region": agents["region"],
            "master_url": f"https://local-ipv4:{facts['port']}",
            "image_id": pool["image_id"],
            "ssh_key_name": agents["keypair"],
            "iam_instance_profile_arn": agents["instance_profile_arn"],
            "root_volume_size": agents["disk_size"],
            "instance_name": f"resolute-{facts['cluster_id']}-agent",
            "tag_key": agents["tag"]["key"],
            "tag_value": agents["tag"]["value"],
            "network_interface": {
                "public_ip": agents["public_ip"],
                "subnets": dict(agents["subnets"]),
                "security_group_ids": [agents["security_group_id"]],
            },
            "offers": _offers(pool),
        }

    def setup(self, facts: Mapping[str, Any]) -> Sequence[str]:
        return (ENGINE,)

    def environment(self, facts: Mapping[str, Any]) -> Sequence[str]:
        return ()


def _offers(pool: Mapping[str, Any]) -> list[dict[str, Any]]:
    types = {"instance_types": list(pool["instance_types"])}
    if pool["spot_max_price"] is not None:
        # The limit applies to the spot market only: on-demand machines remain available.
        return [
            {**types, "markets": ["spot"], "max_price": pool["spot_max_price"]},
            {**types, "markets": ["on_demand"]},
        ]
    return [{**types, **({"markets": ["spot", "on_demand"]} if pool["spot"] else {})}]


FACTS = AwsFacts()
