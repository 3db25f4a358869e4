"""The boot data with which a new machine joins: pure rendering, no environment, no cloud.

A machine receives at boot the address of its master, its own identity and a token for a single join. The local cloud writes them
as `agent.json` into the machine's directory; a cloud with user data gets a script that `render_boot_script` renders from the same
value. That script starts the agent from the wheel that the master serves and reports a failed boot. It powers the machine off
when the boot fails, when the agent requests it, or after too long without contact to a master, also if no agent ever ran: a
machine without its master ends itself.
"""

from __future__ import annotations

import base64
import gzip
import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from urllib.parse import urlsplit

from resolute.errors import InvalidInput

DIRECTORY = "/var/lib/resolute"
"""Directory of everything that the script keeps on a machine; only root may read it."""

SILENCE_MARGIN_S = 60.0
"""Time that the script waits, beyond the agent's own limit, before it ends a machine without a master. The agent ends its tasks
and the machine before."""

_BODY = resources.files("resolute_provisioner").joinpath("boot_script.sh").read_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineBoot:
    """Settings of a machine's agent that the master sets, on every cloud alike."""

    master_url: str
    """`http(s)://host:port` as reached from the machine."""
    agent_id: str
    resource_pool: str
    instance_id: str
    join_token: str
    """Proof that the master launched this machine, until its agent has a credential of its own. Never logged."""
    artificial_slots: int = 0
    """Number of slots of an artificial device; with 0 the agent detects devices."""
    slot_type: str = "auto"
    master_timeout_s: float = 600.0
    """A machine that cannot reach its master for this long ends itself."""
    agent_options: Mapping[str, object] = field(default_factory=dict)
    """Further keys of the agent's own settings; the fields above win over them."""


def render_agent_settings(boot: MachineBoot, *, state_dir: str, notice_file: str) -> str:
    """The text of `agent.json`. The two paths are the machine's own: where the agent keeps its state, and the file
    that appears when the machine is going to be interrupted."""
    decided = asdict(boot)
    options = decided.pop("agent_options")
    settings = {**options, **decided, "state_dir": state_dir, "notice_file": notice_file}
    return json.dumps(settings, indent=2, sort_keys=True) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWheel:
    """The package that the master serves at `/agents/wheels/<name>`. Its hash comes with the user data, so that it may be
    fetched over an untrusted network."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Facts about a cloud for the boot script."""

    notice_source: str = ""
    """The agent's `notice_source`, which announces a machine's end. "" where nothing does."""
    machine_name: str
    """Lines of a bash function that prints the machine's name at its cloud."""
    most_bytes: int
    """Maximum size of the script in bytes, as the cloud accepts it."""
    keeps_disk: bool = False
    """Whether a machine gets its disk again at its next launch. Then nothing of its last use may start with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSetup:
    """The operator's settings for all machines of a pool on a real cloud, and the facts about the master that they need."""

    metadata: Metadata
    """The metadata service of the machines' cloud."""
    wheel: AgentWheel
    startup_script: str = ""
    """Run by root before anything else; when it fails so does the boot."""
    container_startup_script: str = ""
    """Run by a shell each time before the agent, where the agent runs; when it fails the agent does not start."""
    agent_image: str = ""
    """Container image for the agent, with Python and the packages of the extra `agent`; empty runs it on the machine itself."""
    agent_network: str = "default"
    agent_runtime: str = "runc"
    log_driver: str = ""
    """Docker's driver for the output of the agent's container; empty leaves it in a file."""
    log_options: Mapping[str, str] = field(default_factory=dict)
    agent_config: Mapping[str, object] = field(default_factory=dict)
    """Keys of agent.yaml (`agent_config_file_contents`). The master's settings override them."""
    master_cert: str = ""
    """PEM of the authority of an https master's certificate; "" trusts the authorities that the machine trusts."""
    boot_timeout_s: float = 1200.0
    """A machine whose agent has had no answer from its master this long after the start of the script ends itself."""

    def __post_init__(self) -> None:
        if self.log_driver and not self.agent_image:
            raise InvalidInput(
                f"{self.log_driver}: the agent runs in no container whose output Docker could send there; set "
                "agent_docker_image, or remove the key (log_group, use_cloud_logging)"
            )


def agent_file(boot: MachineBoot, host: HostSetup) -> dict[str, object]:
    """The keys of the machine's agent.yaml."""
    parts = urlsplit(boot.master_url)
    tls: dict[str, object] = {"enabled": parts.scheme == "https"}
    if host.master_cert:
        tls["master_cert"] = f"{DIRECTORY}/master.pem"
    return {
        "container_runtime": "docker",
        **host.agent_config,
        **boot.agent_options,
        "master_host": parts.hostname,
        "master_port": parts.port or (443 if parts.scheme == "https" else 80),
        "security": {"tls": tls},
        "agent_id": boot.agent_id,
        "resource_pool": boot.resource_pool,
        "instance_id": boot.instance_id,
        "join_token": boot.join_token,
        "slot_type": boot.slot_type,
        "artificial_slots": boot.artificial_slots,
        "master_timeout": boot.master_timeout_s,
        "notice_source": host.metadata.notice_source,
        "state_dir": f"{DIRECTORY}/agent",
    }


def render_boot_script(boot: MachineBoot, host: HostSetup) -> str:
    """The user data (EC2) or start-up script (Google) of one machine, for bash. Equal arguments give equal bytes.

    Raises `InvalidInput` when it exceeds the cloud's limit.
    """
    files = {
        "agent.yaml": json.dumps(agent_file(boot, host), indent=1, sort_keys=True),
        "authorization": f"X-Resolute-Join-Token: {boot.join_token}",
        "master.pem": host.master_cert,
        "startup": host.startup_script,
        "container-startup": host.container_startup_script,
    }
    variables = {
        "MASTER": boot.master_url.rstrip("/"),
        "INSTANCE": boot.instance_id,
        "WHEEL": host.wheel.name,
        "WHEEL_SHA256": host.wheel.sha256,
        "IMAGE": host.agent_image,
        "BOOT_TIMEOUT_S": str(round(host.boot_timeout_s)),
        "SILENCE_LIMIT_S": str(round(boot.master_timeout_s + SILENCE_MARGIN_S)),
        **({"KEEPS_DISK": "1"} if host.metadata.keeps_disk else {}),
    }
    text = "\n".join(
        [
            "#!/bin/bash",
            "# Starts a machine of a Resolute cluster. The join token in it works once.",
            *(f"{name}={shlex.quote(value)}" for name, value in variables.items()),
            "write_files() {",
            *(f"put {name} <<'END'\n{_packed(content)}\nEND" for name, content in files.items() if content),
            "}",
            f"machine_name() {{\n{host.metadata.machine_name}\n}}",
            f"run_agent() {{ {_agent_command(host, boot)}; }}",
            _BODY,
        ]
    )
    _check_size(text, host)
    return text


def _agent_command(host: HostSetup, boot: MachineBoot) -> str:
    agent = f"-m resolute_agent --config {DIRECTORY}/agent.yaml"
    before = f"sh {DIRECTORY}/container-startup && " if host.container_startup_script else ""
    if not host.agent_image:
        return f'{before}PYTHONPATH="$DIR/package" "$PYTHON" {agent}'
    # No privilege beside the engine's socket, which amounts to root: the agent has every container run by the engine. Its
    # folder has the same path inside, because the engine mounts its contents into tasks.
    options = ["--rm", "--init", "--name", "resolute-agent", "--network", host.agent_network]
    options += ["--runtime", host.agent_runtime]
    if boot.slot_type == "cuda":
        options += ["--gpus", "all"]
    if host.log_driver:
        options += ["--log-driver", host.log_driver]
        options += [f"--log-opt={name}={value}" for name, value in sorted(host.log_options.items())]
    options += [f"--volume={DIRECTORY}:{DIRECTORY}", "--volume=/var/run/docker.sock:/var/run/docker.sock"]
    options += [f"--env=PYTHONPATH={DIRECTORY}/package", "--entrypoint", "/bin/sh", host.agent_image, "-c"]
    command = shlex.join(["docker", "run", *options, f"{before}exec python3 {agent}"])
    return f"docker rm --force resolute-agent; {command}"


def _packed(content: str) -> str:
    return base64.b64encode(gzip.compress(content.encode(), mtime=0)).decode()


def _check_size(text: str, host: HostSetup) -> None:
    limit = host.metadata.most_bytes
    size = len(text.encode())
    if size > limit:
        parts = {
            "startup_script": host.startup_script,
            "container_startup_script": host.container_startup_script,
            "agent_config_file_contents": json.dumps(dict(host.agent_config)),
            "security.tls.cert": host.master_cert,
        }
        shares = ", ".join(f"{key} {len(_packed(value))} bytes" for key, value in parts.items() if value)
        raise InvalidInput(
            f"the machine's boot script has {size} bytes and the cloud takes {limit} (packed: {shares or 'nothing of yours'}); "
            "let startup_script download large parts"
        )
