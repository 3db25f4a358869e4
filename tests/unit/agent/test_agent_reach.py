"""What an agent keeps from tasks, by its settings."""

from __future__ import annotations

import pytest

from resolute_agent.reach import reach_of
from resolute_agent.settings import AgentSettings

SETTINGS = AgentSettings(
    master_url="http://m:1",
    state_dir="/srv/agent",
    agent_id="a",
    config_file="/opt/keys/agent.yaml",
    join_token_file="/data/join-token",
    docker_host="unix:///data/docker.sock",
    hidden_paths=("/srv/cluster",),
)


@pytest.mark.parametrize(
    "path",
    [
        "/srv/agent/containers",
        "/srv",
        "/opt/keys",
        "/opt/keys/agent.yaml",
        "/data/join-token",
        "/data",
        "/data/docker.sock",
        "/srv/cluster",
    ],
)
def test_nothing_that_an_agent_was_given_can_be_named(path: str) -> None:
    assert "which holds" in reach_of(SETTINGS).rules.why_not(path)
    assert reach_of(SETTINGS).rules.why_not("/data/set") == ""
