"""Who serves plain HTTP where others can listen is told so at the start."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from resolute.clock import FixedClock
from resolute.config import parse_master_config
from resolute_master.app import log_tls
from resolute_master.tls import Tls
from support.cluster import T0


@pytest.mark.parametrize(
    ("host", "tls", "warned"),
    [
        ("127.0.0.1", False, False),
        ("::1", False, False),
        ("localhost", False, False),
        ("0.0.0.0", False, True),
        ("10.1.2.3", False, True),
        ("0.0.0.0", True, False),
    ],
)
def test_plain_http_beyond_this_machine_is_a_warning(
    host: str, tls: bool, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    security = {"tls": {"enabled": tls}}
    config = parse_master_config({"host": host, "cluster_state_dir": str(tmp_path), "security": security})
    with caplog.at_level(logging.INFO, logger="resolute_master"):
        log_tls(config, Tls.of(config, FixedClock(T0)))
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == warned
    if warned:
        assert host in warnings[0] and "security.tls.enabled" in warnings[0]
