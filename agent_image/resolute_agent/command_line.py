"""Settings of an agent from its command line, environment and file, in the order that its configuration defines."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from resolute.config.agent import DEFAULT_AGENT_CONFIG_PATH, AgentConfig, load_agent_config
from resolute.config.layers import chosen_file, settings_of
from resolute_agent.settings import METADATA, AgentSettings, read_settings


def settings_from_command_line(
    arguments: Sequence[str], environ: Mapping[str, str], *, usual_file: Path = DEFAULT_AGENT_CONFIG_PATH
) -> AgentSettings:
    """The settings of `python -m resolute_agent`. Raises `InvalidInput` for what cannot be used.

    A `.json` file holds the settings themselves, complete, as a machine of the local cloud is given them; any other
    file is the `agent.yaml` of the documentation, over which environment (`DET_*`) and flags go.
    """
    parser = argparse.ArgumentParser(
        prog="python -m resolute_agent", description="Run the tasks of a Resolute cluster on this machine."
    )
    parser.add_argument(
        "--config", "--config-file", metavar="FILE", help="agent.yaml, or the .json settings of a machine"
    )
    for name in sorted(settings_of(AgentConfig)):
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=argparse.SUPPRESS)
    parser.epilog = (
        "Without a file, /etc/determined/agent.yaml is read where that exists. "
        "Every key of agent.yaml is a flag (--master-host) and a variable (DET_MASTER_HOST)."
    )
    given = vars(parser.parse_args(list(arguments)))
    file = given.pop("config")
    flags = {name: value for name, value in given.items() if value is not None}
    if file is not None and Path(file).suffix == ".json":
        if flags:
            parser.error(f"{file} holds complete settings; no flags go with it: {', '.join(sorted(flags))}")
        return read_settings(Path(file))
    read = chosen_file(file, environ, usual_file)
    return settings_from_config(load_agent_config(read, environ, flags), config_file=str(read or ""))


def settings_from_config(config: AgentConfig, *, config_file: str = "") -> AgentSettings:
    """The settings that a configuration file, environment and flags amount to."""
    source = config.notice_source
    over_http = source.startswith(("http://", "https://"))
    return AgentSettings(
        master_url=config.master_url,
        container_master_url=config.container_master_url,
        state_dir=config.state_dir,
        agent_id=config.agent_id or socket.gethostname(),
        resource_pool=config.resource_pool,
        instance_id=config.instance_id,
        join_token=config.join_token,
        join_token_file=config.join_token_file,
        slot_type=config.slot_type,
        artificial_slots=config.artificial_slots,
        slot_threads=config.slot_threads,
        visible_gpus=tuple(part.strip() for part in config.visible_gpus.split(",") if part.strip()),
        master_timeout_s=config.master_timeout,
        reconnect_cap_s=config.agent_reconnect_backoff,
        notice_file="" if over_http or source in METADATA else source,
        notice_metadata=source if source in METADATA else "",
        notice_url=source if over_http else "",
        runtime=config.container_runtime,
        docker_host=config.docker_host,
        docker_memory_bytes=config.docker_memory,
        docker_ulimits=config.docker_ulimits,
        host_paths_allowed=config.host_paths.allowed,
        config_file=config_file,
        proxies={
            "HTTP_PROXY": config.http_proxy,
            "HTTPS_PROXY": config.https_proxy,
            "FTP_PROXY": config.ftp_proxy,
            "NO_PROXY": config.no_proxy,
        },
        tls_master_cert=config.security.tls.master_cert,
        tls_skip_verify=config.security.tls.skip_verify,
        tls_cert_name=config.security.tls.master_cert_name,
        log_level="debug" if config.debug else config.log.level,
        log_format=config.log.format,
        log_color=config.log.color,
    )
