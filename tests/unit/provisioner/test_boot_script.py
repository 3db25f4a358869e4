"""The boot script of machines on a real cloud, as text: what is in it, what never is, and how large it may be."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from resolute.errors import InvalidInput
from resolute_provisioner.bootstrap import (
    AgentWheel,
    HostSetup,
    MachineBoot,
    Metadata,
    agent_file,
    render_boot_script,
)
from resolute_provisioner.clouds.aws.boot import METADATA as EC2
from resolute_provisioner.clouds.aws.boot import USER_DATA_BYTES as EC2_USER_DATA_BYTES
from resolute_provisioner.clouds.gcp.boot import METADATA as GCE

TOKEN = "a-join-token-that-nobody-may-see"
BOOT = MachineBoot(
    master_url="http://10.0.0.1:8080",
    agent_id="gpus-1-abc",
    resource_pool="gpus",
    instance_id="gpus-1-abc",
    join_token=TOKEN,
    slot_type="cuda",
    master_timeout_s=300.0,
)
HOST = HostSetup(metadata=EC2, wheel=AgentWheel(name="resolute_ml-1.0-py3-none-any.whl", sha256="0f" * 32))


def files_of(script: str) -> dict[str, str]:
    """What the script writes onto the machine."""
    found = re.findall(r"^put (\S+) <<'END'\n(\S+)\nEND$", script, re.MULTILINE)
    return {name: gzip.decompress(base64.b64decode(packed)).decode() for name, packed in found}


def test_the_head_of_the_script() -> None:
    script = render_boot_script(BOOT, HOST)
    head, _, rest = script.partition("write_files() {\n")
    assert head == (
        "#!/bin/bash\n"
        "# Starts a machine of a Resolute cluster. The join token in it works once.\n"
        "MASTER=http://10.0.0.1:8080\n"
        "INSTANCE=gpus-1-abc\n"
        "WHEEL=resolute_ml-1.0-py3-none-any.whl\n"
        f"WHEEL_SHA256={'0f' * 32}\n"
        "IMAGE=''\n"
        "BOOT_TIMEOUT_S=1200\n"
        "SILENCE_LIMIT_S=360\n"
    )
    command = 'PYTHONPATH="$DIR/package" "$PYTHON" -m resolute_agent --config /var/lib/resolute/agent.yaml'
    assert f"\nrun_agent() {{ {command}; }}\n" in rest


def test_what_the_machine_is_told() -> None:
    written = files_of(render_boot_script(BOOT, HOST))
    assert sorted(written) == ["agent.yaml", "authorization"]
    assert json.loads(written["agent.yaml"]) == {
        "agent_id": "gpus-1-abc",
        "artificial_slots": 0,
        "container_runtime": "docker",
        "instance_id": "gpus-1-abc",
        "join_token": TOKEN,
        "master_host": "10.0.0.1",
        "master_port": 8080,
        "master_timeout": 300.0,
        "notice_source": "ec2",
        "resource_pool": "gpus",
        "security": {"tls": {"enabled": False}},
        "slot_type": "cuda",
        "state_dir": "/var/lib/resolute/agent",
    }


def test_equal_arguments_give_equal_bytes() -> None:
    assert render_boot_script(BOOT, HOST) == render_boot_script(replace(BOOT), replace(HOST))


def test_what_the_master_decides_wins_over_the_operators_file() -> None:
    host = replace(HOST, agent_config={"agent_id": "mine", "container_runtime": "process", "log": {"level": "debug"}})
    told = agent_file(BOOT, host)
    assert (told["agent_id"], told["container_runtime"]) == ("gpus-1-abc", "process")
    assert told["log"] == {"level": "debug"}


def test_an_https_master_with_an_authority_of_its_own() -> None:
    host = replace(HOST, master_cert="-----BEGIN CERTIFICATE-----\n")
    boot = replace(BOOT, master_url="https://master.example")
    written = files_of(render_boot_script(boot, host))
    assert written["master.pem"] == "-----BEGIN CERTIFICATE-----\n"
    told = json.loads(written["agent.yaml"])
    assert told["security"] == {"tls": {"enabled": True, "master_cert": "/var/lib/resolute/master.pem"}}
    assert (told["master_host"], told["master_port"]) == ("master.example", 443)


def test_an_agent_in_a_container_gets_the_engine_and_no_privilege() -> None:
    host = replace(
        HOST,
        agent_image="registry.example/agent:1",
        agent_runtime="nvidia",
        container_startup_script="echo 'hello'\n",
        log_driver="awslogs",
        log_options={"awslogs-stream": "it's", "awslogs-group": "g"},
    )
    script = render_boot_script(BOOT, host)
    command = next(line for line in script.splitlines() if line.startswith("run_agent()"))
    assert "--runtime nvidia --gpus all --log-driver awslogs --log-opt=awslogs-group=g" in command
    assert "--volume=/var/run/docker.sock:/var/run/docker.sock" in command and "--privileged" not in command
    assert command.endswith(
        "registry.example/agent:1 -c 'sh /var/lib/resolute/container-startup && "
        "exec python3 -m resolute_agent --config /var/lib/resolute/agent.yaml'; }"
    )
    assert files_of(script)["container-startup"] == "echo 'hello'\n"


def test_what_needs_a_container_is_refused_without_one() -> None:
    with pytest.raises(InvalidInput, match="agent_docker_image"):
        replace(HOST, log_driver="awslogs", log_options={"awslogs-group": "g"})


def readable(script: str) -> str:
    """With the files that the script writes as they are, for what packs them may change from release to release."""
    for name, content in files_of(script).items():
        script = re.sub(rf"(?s)(\nput {name} <<'END'\n).*?(\nEND\n)", lambda m, c=content: m[1] + c + m[2], script)  # type: ignore[misc]
    return script


IN_CONTAINER = replace(
    HOST,
    metadata=GCE,
    agent_image="registry.example/agent:1",
    agent_network="host",
    log_driver="gcplogs",
    startup_script="#!/bin/sh\nmount /data\n",
    container_startup_script="echo ready\n",
    agent_config={"debug": True},
    master_cert="-----BEGIN CERTIFICATE-----\n",
)


@pytest.mark.parametrize(
    ("golden", "host", "master_url"),
    [
        ("ec2_machine.sh", HOST, "http://10.0.0.1:8080"),
        ("gce_container.sh", IN_CONTAINER, "https://master.example:8443"),
    ],
)
def test_the_whole_script(golden: str, host: HostSetup, master_url: str) -> None:
    """As kept in `boot_scripts`; who changes the script on purpose changes these too, and reads the difference."""
    kept = Path(__file__).with_name("boot_scripts") / golden
    assert readable(render_boot_script(replace(BOOT, master_url=master_url), host)) == kept.read_text(encoding="utf-8")


def test_an_agent_on_the_machine_is_started_after_its_script() -> None:
    script = render_boot_script(BOOT, replace(HOST, container_startup_script="echo ready\n"))
    command = next(line for line in script.splitlines() if line.startswith("run_agent()"))
    assert command.startswith("run_agent() { sh /var/lib/resolute/container-startup && PYTHONPATH=")
    assert files_of(script)["container-startup"] == "echo ready\n"


def test_no_secret_stands_in_the_open() -> None:
    host = replace(
        HOST, startup_script="#!/bin/sh\nexport KEY=my-secret\n", agent_config={"http_proxy": "http://u:my-secret@p"}
    )
    script = render_boot_script(BOOT, host)
    assert TOKEN not in script and "my-secret" not in script
    assert "set -x" not in script and "umask 077" in script


@pytest.mark.parametrize("image", ["", "registry.example/agent:1"])
@pytest.mark.parametrize("metadata", [EC2, GCE], ids=["ec2", "gce"])
def test_bash_takes_it(image: str, metadata: Metadata) -> None:
    host = replace(HOST, metadata=metadata, agent_image=image, startup_script='#!/bin/sh\necho "it\'s"\n')
    subprocess.run(["bash", "-n"], input=render_boot_script(BOOT, host), text=True, check=True)


def random_text(length: int) -> str:
    """Text that does not get smaller by packing."""
    state, letters = 1, []
    for _ in range(length):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        letters.append(chr(33 + (state >> 33) % 90))
    return "".join(letters)


def test_the_largest_script_that_ec2_takes() -> None:
    def size(length: int) -> int:
        return len(render_boot_script(BOOT, replace(HOST, startup_script=random_text(length))).encode())

    fits, too_long = 0, EC2_USER_DATA_BYTES
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        try:
            fits, too_long = (middle, too_long) if size(middle) else (fits, middle)
        except InvalidInput as error:
            assert "startup_script" in str(error) and str(EC2_USER_DATA_BYTES) in str(error)
            too_long = middle
    assert EC2_USER_DATA_BYTES - 4 < size(fits) <= EC2_USER_DATA_BYTES
    on_google = replace(HOST, metadata=GCE, startup_script=random_text(2 * too_long))
    assert len(render_boot_script(BOOT, on_google)) > EC2_USER_DATA_BYTES
