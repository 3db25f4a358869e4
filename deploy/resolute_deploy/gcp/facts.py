"""The parts of a master's configuration that are specific to Google Cloud, from the outputs of Terraform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resolute_provisioner.clouds.gcp.catalogue import takes_accelerators

ENGINE = "command -v dockerd >/dev/null || { apt-get update -q && apt-get install -q -y docker.io curl gpg; }\n"
"""Images of Google Cloud have no container engine."""

TOOLKIT = """\
if command -v nvidia-smi >/dev/null && ! command -v nvidia-ctk >/dev/null; then
  keys=/usr/share/keyrings/nvidia-container-toolkit.gpg
  curl -fsSL https://nvidia.github.io/libnvidia-container/gpgkey | gpg --dearmor --yes -o $keys
  echo "deb [signed-by=$keys] https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /" \\
    >/etc/apt/sources.list.d/nvidia-container-toolkit.list
  apt-get update -q && apt-get install -q -y nvidia-container-toolkit
  nvidia-ctk runtime configure --runtime=docker && systemctl restart docker
fi
"""
"""GPU images include the driver, but not the container toolkit."""


class GoogleFacts:
    """Obeys `Facts`."""

    def storage(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "gcs", "bucket": facts["bucket"]}

    def provider(self, facts: Mapping[str, Any], pool: Mapping[str, Any]) -> dict[str, Any]:
        agents = facts["agents"]
        return {
            "type": "gcp",
            "project": agents["project"],
            "zones": list(agents["zones"]),
            "master_url": f"https://internal-ip:{facts['port']}",
            "boot_disk_source_image": pool["image"],
            "boot_disk_size": agents["disk_size"],
            "boot_disk_type": agents["disk_type"],
            "name_prefix": agents["name_prefix"],
            "label_key": agents["label"]["key"],
            "label_value": agents["label"]["value"],
            "network_interface": {
                "network": agents["network"],
                "subnetwork": agents["subnetwork"],
                "external_ip": agents["external_ip"],
            },
            "service_account": {"email": agents["account"]},
            "operation_timeout_period": agents["operation_timeout"],
            "offers": _offers(pool),
        }

    def setup(self, facts: Mapping[str, Any]) -> Sequence[str]:
        return (ENGINE, TOOLKIT)

    def environment(self, facts: Mapping[str, Any]) -> Sequence[str]:
        return [f"{name}={value}" for name, value in sorted(facts["environment"].items())]


def _offers(pool: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Entries of `offers`. GPUs are attached to some machine types, and built into the others."""
    markets = {"markets": ["spot", "on_demand"]} if pool["spot"] else {}
    attachable = [each for each in pool["instance_types"] if pool["gpu_num"] and takes_accelerators(each)]
    others = [each for each in pool["instance_types"] if each not in attachable]
    offers: list[dict[str, Any]] = []
    if attachable:
        gpus = {"gpu_type": pool["gpu_type"], "gpu_num": pool["gpu_num"]}
        offers.append({"instance_types": attachable, **gpus, **markets})
    if others:
        offers.append({"instance_types": others, **markets})
    return offers


FACTS = GoogleFacts()
