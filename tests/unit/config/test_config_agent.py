"""The agent's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute.config import InvalidConfig, load_agent_config, parse_agent_config
from support.config import case_id, cases_in, problems_in

HOST = {"master_host": "m"}


def test_the_smallest_configuration() -> None:
    config = parse_agent_config(HOST)
    assert config.master_url == "http://m:80"
    assert (config.resource_pool, config.slot_type, config.container_runtime) == ("default", "auto", "process")
    assert config.master_timeout is None


def test_layers(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("master_host: file\nresource_pool: file\nagent_id: '7'\nartificial_slots: 1\n")
    environ = {
        "DET_MASTER_HOST": "environment",
        "DET_AGENT_ID": "12",
        "DET_ARTIFICIAL_SLOTS": "3",
        "DET_MASTER_TIMEOUT": "90s",
    }
    config = load_agent_config(file, environ, {"master-host": "flag", "security-tls-enabled": True})
    assert (config.master_host, config.resource_pool, config.agent_id) == ("flag", "file", "12")
    assert (config.artificial_slots, config.master_timeout) == (3, 90.0)
    assert config.master_url == "https://flag:443"


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({}, ""),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "0,1"),
        ({"CUDA_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "2"}, "2"),
        ({"CUDA_VISIBLE_DEVICES": "0", "DET_VISIBLE_GPUS": "3"}, "3"),
    ],
)
def test_visible_gpus_come_from_the_environment(environ: dict[str, str], gpus: str) -> None:
    assert load_agent_config(None, environ, HOST).visible_gpus == gpus


def test_addresses_for_tasks() -> None:
    config = parse_agent_config(
        {**HOST, "master_port": 8080, "container_master_host": "::1", "container_master_port": 9}
    )
    assert config.master_url == "http://m:8080"
    assert config.container_master_url == "http://[::1]:9"
    assert parse_agent_config({**HOST, "master_port": 8080}).container_master_url == "http://m:8080"


def test_old_names() -> None:
    config = parse_agent_config({**HOST, "slot_type": "gpu", "fluent": {"port": 1}, "image_root": "/i"})
    assert config.slot_type == "cuda"
    assert config.warnings() == ("config.image_root has no effect; remove it", "config.fluent has no effect; remove it")


@pytest.mark.parametrize("case", cases_in(Path(__file__).parent / "bad_agents.yaml"), ids=case_id)
def test_one_mistake_is_one_line(case: dict[str, Any]) -> None:
    assert problems_in(parse_agent_config, case["given"]) == [case["error"]]


def test_the_join_token_is_not_displayed() -> None:
    shown = parse_agent_config({**HOST, "join_token": "hunter2"}).masked()
    assert "hunter2" not in repr(shown)
    with pytest.raises(InvalidConfig, match=r"join_token: is \*{8}, which is shown instead of a secret"):
        parse_agent_config(shown)
    assert parse_agent_config({**shown, "join_token": "hunter2"}).masked() == shown
