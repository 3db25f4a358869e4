"""The environment of a task: what the master sent and what the machine adds, nothing of the agent's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from resolute.errors import InvalidInput
from resolute.wire.agent_link import LONG_VARIABLE_BYTES, LONG_VARIABLES, ContainerSpec, Device, named_python
from resolute.wire.states import SlotKind
from resolute_agent.devices.rocm import runtime_name

RUN_DIR = "/run/determined"
MASTER_CERT = "etc/ssl/master.crt"
"""In a run directory: the authority of an https master."""

NO_VERIFICATION = "noverify"
"""The value that tasks get instead of a file where the agent trusts any certificate."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SLOT_THREADS = "RESOLUTE_SLOT_THREADS"
"""Variable of a machine's environment: a slot's share of the machine's processors, as a number of threads."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""What the libraries that compute read."""

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY")


def trust_environment(*, has_cert: bool, skip_verify: bool, cert_name: str) -> dict[str, str]:
    """The certificate of an https master for tasks; empty where the machine trusts it by itself."""
    variables = {"DET_MASTER_CERT_FILE": f"{RUN_DIR}/{MASTER_CERT}"} if has_cert else {}
    if skip_verify:
        variables["DET_MASTER_CERT_FILE"] = NO_VERIFICATION
    if cert_name:
        variables["DET_MASTER_CERT_NAME"] = cert_name
    return variables


def machine_environment(master_url: str, proxies: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that every task of this machine gets: where its master is, and the machine's proxies.

    Raises `InvalidInput` when `master_url` is no http(s) URL with a host.
    """
    parts = urlsplit(master_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            f"master_url: {master_url!r} is no URL of a master; write http://host:port or https://host:port"
        )
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {
        "DET_MASTER": f"{parts.scheme}://{parts.netloc if parts.port else f'{parts.netloc}:{port}'}",
        "DET_MASTER_HOST": parts.hostname,
        "DET_MASTER_ADDR": parts.hostname,
        "DET_MASTER_PORT": str(port),
        "DET_USE_TLS": "true" if parts.scheme == "https" else "false",
        **{name: value for name, value in sorted((proxies or {}).items()) if value},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a container runs: its run directory and temporary folder as it sees them, and what it is lent. `user` is the name of
    its own user; empty where it has none."""

    run_dir: str
    tmp_dir: str
    private_root: bool
    python_bin: str
    package_roots: Sequence[str]
    user: str = ""


def task_environment(
    spec: ContainerSpec, machine: Mapping[str, str], devices: Sequence[Device], place: Place
) -> dict[str, str]:
    """All variables of a task. The machine's win over the master's, except for proxies that the user set."""
    given = dict(spec.environment)
    users = {name.upper() for name in given}
    own = {name: value for name, value in machine.items() if name not in _PROXIES or name not in users}
    work_dir = spec.working_directory or f"{place.run_dir}/workdir"
    environment = {
        "LANG": "C.UTF-8",
        "HOME": work_dir,
        **({"USER": place.user, "LOGNAME": place.user} if place.user else {}),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUSERBASE": f"{place.run_dir}/pythonuserbase",
        **_devices(devices),
        **_threads(devices, own),
        **given,
        **own,
        "DET_CONTAINER_ID": spec.container_id,
        "DET_SLOT_IDS": json.dumps([device.index for device in devices]),
        "DET_RESOURCES_TYPE": "docker-container",
        "DET_RUN_DIR": place.run_dir,
        "DET_WORKDIR": work_dir,
        "DET_PRIVATE_ROOT": "1" if place.private_root else "0",
        "PATH": _search_path(given, place.python_bin),
        "PYTHONPATH": ":".join([*place.package_roots, *filter(None, [given.get("PYTHONPATH")])]),
    }
    for name in long_variables(spec):
        del environment[name]
    environment.setdefault("DET_RESOURCES_ID", spec.container_id)
    if own.get("DET_MASTER_CERT_FILE") == f"{RUN_DIR}/{MASTER_CERT}":
        environment["DET_MASTER_CERT_FILE"] = f"{place.run_dir}/{MASTER_CERT}"
    if not place.private_root:
        environment["PYTHONUSERBASE"] = f"{place.run_dir}/pythonuserbase"
        environment.setdefault("TMPDIR", place.tmp_dir)
    return environment


def _search_path(given: Mapping[str, str], python_bin: str) -> str:
    """The agent's programs first, for a task that names no Python of its own; else last."""
    path = given.get("PATH") or SYSTEM_PATH
    parts = (path, python_bin) if named_python(given) else (python_bin, path)
    return ":".join(filter(None, parts))


def _threads(devices: Sequence[Device], machine: Mapping[str, str]) -> dict[str, str]:
    """How many threads a process of a CPU slot computes with: else each would take all of the machine's."""
    count = machine.get(SLOT_THREADS)
    if not count or not devices or any(device.kind is not SlotKind.CPU for device in devices):
        return {}
    return dict.fromkeys(THREAD_VARIABLES, count)


def slot_threads(cpus: int, slots: int) -> int:
    """The processors that one slot may use out of all of the machine; at least one."""
    return max(1, cpus // max(1, slots))


def long_variables(spec: ContainerSpec) -> dict[str, str]:
    """Those of the master's variables that the run directory holds instead: see `LONG_VARIABLES_FILE`."""
    found = ((name, spec.environment.get(name, "")) for name in LONG_VARIABLES)
    return {name: value for name, value in found if len(value.encode()) > LONG_VARIABLE_BYTES}


def _devices(devices: Sequence[Device]) -> dict[str, str]:
    """Without a container engine, visibility of GPUs is a matter of variables: a task sees its own ones only."""
    cuda = [device.uuid for device in devices if device.kind is SlotKind.CUDA]
    rocm = [runtime_name(device) for device in devices if device.kind is SlotKind.ROCM]
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(cuda),
        "NVIDIA_VISIBLE_DEVICES": ",".join(cuda) or "void",
        "ROCR_VISIBLE_DEVICES": ",".join(rocm),
    }
