"""What a task of a process runtime can reach of its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from resolute.host_paths import HostPathRules
from resolute.wire.agent_link import BindMount, ContainerOptions
from resolute_agent.reach import REMEDY, Reach
from resolute_agent.runtimes import process
from resolute_agent.runtimes.base import LaunchRefused
from resolute_agent.runtimes.process import ProcessRuntime
from support.agent_scripts import a_container, a_context
from support.reachable import open_to_everybody


async def _runtime(tmp_path: Path) -> ProcessRuntime:
    rules = HostPathRules(state={str(tmp_path / "state"): "the state of the agent"}, remedy=REMEDY)
    return await ProcessRuntime.open(tmp_path / "state" / "containers", reach=Reach(rules=rules))


@pytest.mark.parametrize("named", ["state", "state/containers", "data/../state", "", "link", "link/agent-state.json"])
async def test_no_host_path_reaches_the_state_of_the_agent(tmp_path: Path, named: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    runtime = await _runtime(tmp_path)
    path = f"{tmp_path}/{named}"
    with pytest.raises(LaunchRefused, match=r"bind_mounts: .* holds the state of the agent"):
        mounts = (BindMount(host_path=path, container_path="/tmp/mounted"),)
        await runtime.start(a_container("exit 0", options=ContainerOptions(mounts=mounts)), a_context())
    with pytest.raises(LaunchRefused, match=r"checkpoint_storage: .* holds the state of the agent"):
        await runtime.start(a_container("exit 0", shared_directories=((path, "/tmp/mounted"),)), a_context())
    assert await runtime.adopt() == ()


@pytest.mark.needs("namespaces")
async def test_a_link_that_is_swapped_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await _runtime(tmp_path)
    link = tmp_path / "data"
    link.mkdir()

    def checked_and_swapped(*_: object) -> str:
        link.rmdir()
        link.symlink_to(tmp_path / "state")
        return ""

    monkeypatch.setattr(process, "refused_path", checked_and_swapped)
    open_to_everybody(tmp_path)
    with pytest.raises(LaunchRefused, match="holds the state of the agent"):
        mounts = (BindMount(host_path=str(link), container_path="/tmp/mounted"),)
        await runtime.start(a_container("exit 0", options=ContainerOptions(mounts=mounts)), a_context())
