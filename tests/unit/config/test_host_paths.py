"""Which paths of a machine an experiment may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from resolute.host_paths import DEVICES, HostPathRules, why_not_device

STATE = {"/srv/resolute": "the state of the master", "/opt/app/agent.yaml": "the configuration of the agent"}
RULES = HostPathRules(state=STATE, configured=("/srv/resolute/checkpoints",), remedy="add it to the list")


@pytest.mark.parametrize(
    "path",
    [
        "/srv/resolute",
        "/srv/resolute/",
        "//srv//resolute",
        "/srv/resolute/resolute.db",
        "/srv",
        "/",
        "//",
        "/data/../srv/resolute",
        "/srv/./resolute/pools",
        "/srv/resolute/checkpoints/../resolute.db",
        "/opt/app",
        "/opt/app/agent.yaml",
        "/etc",
        "/etc/passwd",
        "/proc/1/root",
        "/var/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/var",
        "/usr/local/lib",
        "/dev/sda",
        "relative",
        "/data\0/etc",
    ],
)
def test_no_path_reaches_state_or_system(path: str) -> None:
    assert RULES.why_not(path)


@pytest.mark.parametrize(
    "path",
    ["/data", "/srv/resolute-data", "/srv/resolute/checkpoints", "/srv/resolute/checkpoints/mine", "/opt/app/data"],
)
def test_other_paths_and_what_the_operator_configured_may_be_named(path: str) -> None:
    assert RULES.why_not(path) == ""


def test_a_list_narrows_what_may_be_named_and_opens_system_paths_but_no_state() -> None:
    rules = HostPathRules(state=STATE, allowed=("/data", "/usr/share/sets", "/srv"), remedy="add it to the list")
    assert rules.why_not("/data/a") == rules.why_not("/usr/share/sets") == rules.why_not("/srv/other") == ""
    assert "add it to the list" in rules.why_not("/scratch")
    assert "add it to the list" in rules.why_not("/usr/share")
    assert "which holds the state of the master" in rules.why_not("/srv/resolute/pools")
    assert "which holds the state of the master" in rules.why_not("/srv")


def test_a_symbolic_link_leads_around_no_rule(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    link = tmp_path / "data"
    link.symlink_to(state)
    rules = HostPathRules(state={str(state): "the state"}, remedy="")
    assert rules.why_not(str(link))
    assert rules.why_not(str(link / "below"))
    assert HostPathRules(state={str(link): "the state"}, remedy="").why_not(str(state))
    (tmp_path / "etc").symlink_to("/etc")
    assert rules.why_not(str(tmp_path / "etc"))


def test_an_allowed_path_that_is_a_link_to_state_opens_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(state)
    rules = HostPathRules(state={str(state): "the state"}, allowed=(str(tmp_path / "data"),), remedy="")
    assert rules.why_not(str(tmp_path / "data")) == ""
    assert rules.why_not(str(tmp_path / "data" / "link"))
    assert rules.why_not_state(str(tmp_path / "data" / "link"))
    assert not rules.why_not_state(str(tmp_path / "elsewhere"))


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/dev/nvidia0", True),
        ("/dev/dri/renderD128", True),
        ("/dev/sda", False),
        ("/dev/dri/../sda", False),
        ("/dev", False),
    ],
)
def test_devices_are_allowed_by_pattern(path: str, allowed: bool) -> None:
    assert (why_not_device(path, DEVICES, "add it") == "") is allowed
