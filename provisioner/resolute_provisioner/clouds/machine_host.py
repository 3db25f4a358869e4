"""Settings for machines that boot from the script of `bootstrap`, built from the pool's configuration."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from urllib.parse import urlsplit

from resolute.config.agent import parse_agent_config
from resolute.config.pools import ResourcePool
from resolute.config.providers import CloudProvider
from resolute.errors import InvalidInput
from resolute_provisioner.bootstrap import AgentWheel, HostSetup, MachineBoot, Metadata, agent_file, render_boot_script

EXAMPLE_WHEEL = AgentWheel(name="resolute_ml-0.0.0-py3-none-any.whl", sha256="0" * 64)
"""An example wheel, as long as the real one, so that the size of rendered scripts is exact."""

_EXAMPLE = "0" * 64
"""An example token, as long as the real one, so that the size of the script is exact."""


def host_setup(
    pool: ResourcePool,
    provider: CloudProvider,
    *,
    metadata: Metadata,
    wheel: AgentWheel,
    log_driver: str = "",
    log_options: Mapping[str, str] | None = None,
    master_cert: str = "",
) -> HostSetup:
    """Settings of the machines, checked by rendering the script of an example. Raises `InvalidInput` for values with which no
    machine could boot."""
    if provider.master_cert_name:
        raise InvalidInput(
            "master_cert_name: is not acted on; use the name of the certificate as the host of master_url, and remove the key"
        )
    given = {
        "agent_reconnect_attempts": provider.agent_reconnect_attempts,
        "agent_reconnect_backoff": provider.agent_reconnect_backoff,
        **(provider.agent_config_file_contents or {}),
    }
    host = HostSetup(
        metadata=metadata,
        wheel=wheel,
        startup_script=provider.startup_script,
        container_startup_script=provider.container_startup_script,
        agent_image=provider.agent_docker_image,
        agent_network=provider.agent_docker_network,
        agent_runtime=provider.agent_docker_runtime,
        log_driver=log_driver,
        log_options=log_options or {},
        agent_config=given,
        boot_timeout_s=provider.max_agent_starting_period,
        master_cert=master_cert,
    )
    example = MachineBoot(
        master_url=provider.master_url or "http://255.255.255.255:65535",
        agent_id=f"{pool.pool_name}-100000-00000000",
        resource_pool=pool.pool_name,
        instance_id=f"{pool.pool_name}-100000-00000000",
        join_token=_EXAMPLE,
    )
    parse_agent_config(agent_file(example, host))
    render_boot_script(example, host)
    return host


def resolved_master_url(
    pool: ResourcePool,
    provider: CloudProvider,
    port: int,
    *,
    kinds: Container[str],
    usual: str,
    address_of: Callable[[str], str | None],
    tls: bool = False,
) -> str | None:
    """`master_url` where the master's own machine must provide its address: where none is given, or its host is a kind of address
    (`http://local-ipv4:8080`). Blocking. None if it is correct, or if the `usual` kind is unknown.

    Raises `InvalidInput` if the requested kind is unknown.
    """
    given = provider.master_url
    kind = (urlsplit(given).hostname or "") if given else usual
    if kind not in kinds:
        return None
    address = address_of(kind)
    if address:
        return f"{urlsplit(given).scheme or ('https' if tls else 'http')}://{address}:{urlsplit(given).port or port}"
    if given:
        raise InvalidInput(
            f"resource_pools: provider.master_url of pool '{pool.pool_name}' asks for the master's {kind}, which no metadata "
            "service reports; write an address"
        )
    return None


def reachable_master(pool: ResourcePool, master_url: str, listens_on: str, port: int, *, tls: bool = False) -> str:
    """The master as machines of a cloud reach it: the configured address, else the one that it listens on, with `tls`.

    Raises `InvalidInput` where that is only this machine's own.
    """
    if master_url:
        return master_url
    if listens_on in ("0.0.0.0", "::", "localhost") or listens_on.startswith("127.") or listens_on == "::1":
        raise InvalidInput(
            f"resource_pools: provider.master_url of pool '{pool.pool_name}' must be given: the machines of a cloud cannot "
            f"reach {listens_on}, and no metadata service provides this master's address; write http://host:port"
        )
    return f"{'https' if tls else 'http'}://{f'[{listens_on}]' if ':' in listens_on else listens_on}:{port}"
