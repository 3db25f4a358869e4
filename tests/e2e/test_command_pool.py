"""A pool of the operator's own machines: two experiments on one machine that is turned on and off twice and keeps its disk.

Real are the master, the programs that turn machines on and off, the boot script and the agent that it starts. The machine is made
of namespaces.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from resolute.wire.rest.extensions import Instance
from support.booted_machines import INIT, POWER_OFF
from support.live import LiveCluster, until

pytestmark = pytest.mark.needs("machines")

RACK = """\
#!/bin/sh
# rack on|off|list [machine]
cd "$(dirname "$0")" || exit 1
case $1 in
  on)
    [ -e "on/$2" ] && exit 0
    mkdir -p "$2/lib" && rm -f "$2/off" "$2/lib/off" && cat >"$2/user-data" && chmod 700 "$2/user-data" && : >"on/$2"
    setsid sh -c 'env -i PATH="$PWD/shims:$0" HOME=/root LANG=C.UTF-8 unshare --mount --pid --fork --kill-child --mount-proc \\
      sh "$PWD/init" "$PWD/$1"; rm -f "on/$1"' "{path}" "$2" >/dev/null 2>&1 </dev/null & ;;
  off) : >"$2/off" ;;
  list) ls on ;;
esac
"""


class Rack:
    """Machines that are directories, and the program of the operator who has them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for made in ("on", "shims"):
            (directory / made).mkdir(parents=True)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
        self.program = self._script("rack", RACK.replace("{path}", path))
        self._script("init", INIT.replace('[ ! -e "$1/off" ]', '[ ! -e "$1/off" ] && [ ! -e /var/lib/off ]'))
        for name in POWER_OFF:
            self._script(f"shims/{name}", "#!/bin/sh\ntouch /var/lib/off\n")

    def _script(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def on(self) -> list[str]:
        return sorted(each.name for each in (self.directory / "on").iterdir())

    def log(self) -> str:
        files = sorted(self.directory.glob("*/console.log")) + sorted(self.directory.glob("*/lib/resolute/*.log"))
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')}" for file in files)


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    made = Rack(tmp_path / "rack")
    yield made
    for name in made.on():
        (made.directory / name / "off").touch()
    until("the rack is off", lambda: not made.on())


@pytest.fixture
def cluster(tmp_path: Path, rack: Rack) -> Iterator[LiveCluster]:
    made = LiveCluster(tmp_path / "cluster", pool={"shared_file_system": True})
    command = [str(rack.program)]
    made.config["resource_pools"][0]["provider"] = {
        "type": "command",
        "master_url": made.url,
        "launch_command": [*command, "on"],
        "end_command": [*command, "off"],
        "list_command": [*command, "list"],
        "machines": [{"names": ["node-1"], "instance_type": "box", "slots": 1, "slot_type": "cpu"}],
        "prices": {"box": {"on_demand": 0.5}},
        "max_idle_agent_period": "1s",
        "agent_config_file_contents": {"container_runtime": "process"},
    }
    made.config_file.write_text(yaml.safe_dump(made.config))
    made.start()
    yield made
    made.stop()


def closed(cluster: LiveCluster) -> tuple[Instance, ...] | None:
    instances = cluster.client.cluster.instances()
    return instances if all(each.state == "gone" for each in instances) else None


def test_a_machine_is_turned_on_for_work_and_off_after_it_and_serves_again(cluster: LiveCluster, rack: Rack) -> None:
    disk = rack.directory / "node-1" / "lib" / "resolute"
    for life in (1, 2):
        experiment = cluster.submit({"script": ["report 3 every 0.01s"]}, max_restarts=0)
        assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED", rack.log()
        until("the machine is off", lambda: not rack.on())
        instances = until("the books are closed", lambda: closed(cluster))
        assert len(instances) == life
        assert {(each.offer, each.price_per_hour) for each in instances} == {("command/default/box/on_demand", 0.5)}
        assert all(each.paid_from and each.paid_until and each.paid_from <= each.paid_until for each in instances)
        assert (disk / "booted").read_text().strip() in {each.id for each in instances}
        assert not (disk / "left").exists()
        (disk / "left").touch()
