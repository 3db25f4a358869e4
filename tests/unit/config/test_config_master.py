"""The master's configuration: layers, rules, pools, providers, display."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resolute.config import (
    InvalidConfig,
    PostgresDatabase,
    load_master_config,
    parse_master_config,
)
from resolute.config.layers import chosen_file
from resolute.errors import InvalidInput
from resolute.providers import PROVIDERS
from resolute_provisioner.clouds.aws.configuration import AwsProvider
from resolute_provisioner.clouds.gcp.configuration import GcpProvider
from resolute_provisioner.clouds.local.configuration import Interruption, LaunchRefusal, LocalProvider
from support.config import case_id, cases_in, problems_in

AWS = {"type": "aws", "ssh_key_name": "k"}


def one_pool(**keys: Any) -> dict[str, Any]:
    return {"resource_pools": [{"pool_name": "default", **keys}]}


def test_without_anything_there_is_one_pool_and_a_file_database() -> None:
    config = load_master_config(None, {})
    assert [pool.pool_name for pool in config.resource_pools] == ["default"]
    assert config.sqlite_path == Path("/var/lib/resolute/resolute.db")
    assert (config.host, config.port, config.launch_error) == ("0.0.0.0", 8080, True)
    assert config.resource_pools[0].agent_reconnect_wait == 25.0
    assert config.resource_pools[0].max_aux_containers_per_agent == 100
    scheduler = config.scheduler_of(config.resource_pools[0])
    assert (scheduler.type, scheduler.default_priority, scheduler.preemption) == ("priority", 42, False)
    assert not config.telemetry.enabled


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text("port: 1\ncluster_name: file\nlog: {level: debug}\ndb: {path: /file.db}\n")
    environ = {"DET_PORT": "2", "DET_CLUSTER_NAME": "environment", "DET_UNRELATED": "x", "DET_DB_PATH": "/env.db"}
    config = load_master_config(file, environ, {"port": 3, "cluster-name": None})
    assert (config.port, config.cluster_name, config.log.level) == (3, "environment", "debug")
    assert config.sqlite_path == Path("/env.db")


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("port: 5")
    assert load_master_config(None, {"DET_CONFIG_FILE": str(file)}).port == 5


def test_the_usual_file_is_read_where_nothing_names_another(tmp_path: Path) -> None:
    usual, other = tmp_path / "etc" / "master.yaml", tmp_path / "other.yaml"
    assert chosen_file(None, {}, usual) is None
    usual.parent.mkdir()
    usual.write_text("port: 6")
    assert chosen_file(None, {"DET_CONFIG_FILE": ""}, usual) == usual
    assert chosen_file(None, {"DET_CONFIG_FILE": str(other)}, usual) == other
    assert chosen_file(str(other), {"DET_CONFIG_FILE": "third.yaml"}, usual) == other
    assert chosen_file("third.yaml", {}, usual) == Path.cwd() / "third.yaml"
    assert chosen_file(None, {}, usual / "below" / "a.file") is None


def test_a_usual_file_that_is_there_and_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    usual = tmp_path / "master.yaml"
    usual.symlink_to("nothing.yaml")
    with pytest.raises(InvalidInput, match=r"the file .*/master\.yaml does not exist"):
        load_master_config(chosen_file(None, {}, usual), {})
    secret = tmp_path / ("x" * 300)  # a name that the file system refuses, as a closed directory would be
    assert chosen_file(None, {}, secret) == secret


def test_variables_keep_texts_and_read_other_values_as_yaml() -> None:
    environ = {
        "DET_SECURITY_INITIAL_USER_PASSWORD": "12345",
        "DET_PORT": "60",
        "DET_ENABLE_CORS": "true",
        "DET_HEARTBEAT_INTERVAL": "500ms",
        "DET_SECURITY_TLS_NAMES": "[a.example, b.example]",
        "DET_NOTEBOOK_TIMEOUT": "",
        "DET_CHECKPOINT_STORAGE_TYPE": "shared_fs",
        "DET_CHECKPOINT_STORAGE_HOST_PATH": "/c",
    }
    config = load_master_config(None, environ)
    assert config.security.initial_user_password == "12345"
    assert config.port == 60
    assert (config.enable_cors, config.heartbeat_interval) == (True, 0.5)
    assert config.security.tls.names == ("a.example", "b.example")
    assert config.notebook_timeout is None
    assert config.checkpoint_storage is not None
    assert config.checkpoint_storage.type == "shared_fs"


def test_flags_may_be_nested_or_joined() -> None:
    config = load_master_config(None, {}, {"db": {"path": "/x.db"}, "security.initial-user-password": "p"})
    assert config.sqlite_path == Path("/x.db")
    assert config.security.initial_user_password == "p"


def test_errors_name_the_layer_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text("log: {level: loud}")
    lines = problems_in(load_master_config, file, {"DET_PORT": "abc"}, {"launch-error": 3})
    assert lines == [
        "<config>.launch_error: must be true or false (value 3), set by the flag --launch-error",
        '<config>.log.level: must be one of trace, debug, info, warn, error, fatal (value "loud")',
        '<config>.port: must be an integer (value "abc"), set by DET_PORT',
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"the master configuration: the file .*/nothing\.yaml does not exist"):
        load_master_config(tmp_path / "nothing.yaml", {})
    with pytest.raises(
        InvalidInput, match=r"the master configuration: the file .* cannot be read: Is a directory; let the user that"
    ):
        load_master_config(tmp_path, {})
    broken = tmp_path / "broken.yaml"
    broken.write_text("port: [")
    with pytest.raises(
        InvalidInput, match=r"the master configuration in .*broken\.yaml is not readable as YAML: line 1"
    ):
        load_master_config(broken, {})
    broken.write_text("prot: 1")
    with pytest.raises(InvalidInput, match=r"the master configuration in .*broken\.yaml has 1 error"):
        load_master_config(broken, {})


def test_an_unknown_flag_is_an_error() -> None:
    with pytest.raises(InvalidInput, match=r"there is no flag for 'prt'; did you mean 'port'\?"):
        load_master_config(None, {}, {"prt": 1})


@pytest.mark.parametrize("case", cases_in(Path(__file__).parent / "bad_masters.yaml"), ids=case_id)
def test_one_mistake_is_one_line(case: dict[str, Any]) -> None:
    error = case["error"].replace("{providers}", ", ".join(PROVIDERS))
    assert problems_in(parse_master_config, case["given"]) == [error]


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (
            {"__internal": {"proxied_servers": [{"destination": "http://x:1", "path_prefix": "/x"}]}},
            "__internal.proxied_servers",
        ),
        ({"feature_switches": ["streaming_updates"]}, "feature_switches"),
        ({"reserved_ports": [12350]}, "reserved_ports"),
        ({"cache": {"cache_dir": "/fast"}}, "cache.cache_dir"),
        ({"notebook_timeout": "1h"}, "notebook_timeout"),
        ({"security": {"ssh": {"key_type": "RSA"}}}, "security.ssh.key_type"),
        ({"security": {"token": {"default_lifespan_days": 7}}}, "security.token.default_lifespan_days"),
        ({"security": {"authz": {"rbac_ui_enabled": True}}}, "security.authz.rbac_ui_enabled"),
        ({"__internal": {"audit_logging_enabled": True}}, "__internal.audit_logging_enabled"),
        ({"saml": {"enabled": True, "idp_cert_path": "x"}}, "saml"),
    ],
)
def test_what_is_not_acted_on_is_refused_when_loading(raw: dict[str, Any], path: str, tmp_path: Path) -> None:
    parse_master_config(raw)
    file = tmp_path / "master.yaml"
    file.write_text(json.dumps(raw))
    (line,) = problems_in(load_master_config, file, {})
    assert line.startswith(f"<config>.{path}: this value is not acted on yet")


def test_a_local_provider_reads_its_script() -> None:
    provider = {
        "type": "local",
        "slots_per_instance": 2,
        "boot_delay": "500ms",
        "price_per_hour": 1.2,
        "max_idle_agent_period": "30s",
        "refuse": [{"launch": 1, "error": "no_capacity"}],
        "interruptions": [
            {"instance": 1, "after_steps": 40, "notice": "10s"},
            {"instance": 2, "after": "1m", "notice": None},
        ],
    }
    read = parse_master_config(one_pool(provider=provider)).resource_pools[0].provider
    assert isinstance(read, LocalProvider)
    assert (read.boot_delay, read.max_idle_agent_period, read.max_agent_starting_period) == (0.5, 30.0, 1200.0)
    assert read.refuse == (LaunchRefusal(launch=1, error="no_capacity"),)
    assert read.interruptions == (
        Interruption(instance=1, after_steps=40, notice=10.0),
        Interruption(instance=2, after=60.0, notice=None),
    )


def test_cloud_providers_have_the_documented_defaults() -> None:
    pools = [{"pool_name": "default", "provider": AWS}, {"pool_name": "g", "provider": {"type": "gcp"}}]
    aws, gcp = (pool.provider for pool in parse_master_config({"resource_pools": pools}).resource_pools)
    assert isinstance(aws, AwsProvider)
    assert (aws.instance_type, aws.root_volume_size, aws.tag_key, aws.spot) == ("g4dn.metal", 200, "managed_by", False)
    assert aws.network_interface.public_ip
    assert isinstance(gcp, GcpProvider)
    assert (gcp.label_key, gcp.operation_timeout_period, gcp.instance_type.gpu_num) == ("managed-by", 300.0, 4)


def test_old_forms_are_read() -> None:
    config = parse_master_config(
        {"scheduler": {"fitting_policy": "worst"}, "provisioner": {"type": "local", "max_instances": 1}}
    )
    assert config.resource_manager.scheduler.fitting_policy == "worst"
    assert config.resource_pools[0].provider == LocalProvider(max_instances=1)
    renamed = parse_master_config(
        {
            "resource_manager": {"name": "old", "default_cpu_resource_pool": "p", "default_gpu_resource_pool": "p"},
            "resource_pools": [{"pool_name": "p", "max_cpu_containers_per_agent": 3, "agent_reattach_enabled": True}],
        }
    )
    assert renamed.resource_manager.cluster_name == "old"
    assert renamed.resource_pools[0].max_aux_containers_per_agent == 3


def test_pools_are_found_by_name_and_by_default() -> None:
    config = parse_master_config(
        {
            "resource_manager": {"default_aux_resource_pool": "aux", "default_compute_resource_pool": "gpu"},
            "resource_pools": [{"pool_name": "aux"}, {"pool_name": "gpu", "scheduler": {"default_priority": 7}}],
        }
    )
    assert config.pool_for("", 0).pool_name == "aux"
    assert config.pool_for("", 2).pool_name == "gpu"
    assert config.pool_for("aux", 2).pool_name == "aux"
    assert config.scheduler_of(config.pool("gpu")).default_priority == 7
    with pytest.raises(InvalidInput, match=r"resources\.resource_pool: there is no pool 'gpus'; did you mean 'gpu'\?"):
        config.pool_for("gpus", 1)
    nameless = parse_master_config({"resource_manager": {"no_default_resource_pools": True}})
    with pytest.raises(InvalidInput, match="this cluster has no default pool; name one"):
        nameless.pool_for("", 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_blank_passwords_are_possible_at_home(host: str) -> None:
    assert parse_master_config({"host": host, "security": {"allow_blank_password": True}}).is_loopback


def test_databases_are_told_apart() -> None:
    config = parse_master_config({"db": {"host": "h", "port": "5433", "user": "u", "password": "p", "name": "n"}})
    assert isinstance(config.db, PostgresDatabase)
    assert (config.db.port, config.sqlite_path) == (5433, None)
    assert parse_master_config({"cluster_state_dir": "/s"}).sqlite_path == Path("/s/resolute.db")


def test_tls_moves_the_port() -> None:
    tls = {"security": {"tls": {"cert": "c", "key": "k"}}}
    assert parse_master_config(tls).port == 8443
    assert parse_master_config({**tls, "port": 9}).port == 9


def test_no_secret_is_displayed_and_the_rest_is_read_again() -> None:
    raw = {
        "db": {"host": "h", "user": "u", "password": "hunter2", "name": "n"},
        "security": {"initial_user_password": "hunter2"},
        "webhooks": {"signing_key": "hunter2"},
        "telemetry": {"segment_master_key": "hunter2"},
        "observability": {"metrics_token": "hunter2"},
        "checkpoint_storage": {"type": "azure", "container": "c", "connection_string": "hunter2"},
        "task_container_defaults": {"registry_auth": {"password": "hunter2"}, "startup_hook": "hunter2"},
        "saml": {"enabled": False, "secret": "hunter2"},
        "logging": {"type": "elastic", "host": "h", "port": 1, "security": {"username": "u", "password": "hunter2"}},
        **one_pool(
            task_container_defaults={"registry_auth": {"identitytoken": "hunter2"}},
            provider={**AWS, "startup_script": "hunter2", "container_startup_script": "hunter2"},
        ),
    }
    config = parse_master_config(raw)
    shown = config.masked()
    assert "hunter2" not in repr(shown)
    assert shown["db"]["password"] == "********"
    assert shown["resource_pools"][0]["agent_reconnect_wait"] == "25s"
    assert "__internal" in shown
    with pytest.raises(
        InvalidConfig, match=r"db.password: is \*{8}, which is shown instead of a secret; write the value"
    ):
        parse_master_config(shown)
    again = json.loads(json.dumps(shown).replace("********", "another"))
    assert parse_master_config(again).masked() == shown


@pytest.mark.parametrize(
    "storage", [{"type": "shared_fs", "host_path": "/data"}, {"type": "directory", "container_path": "/d"}]
)
def test_a_pool_that_rents_machines_does_not_keep_checkpoints_on_them(storage: dict[str, Any]) -> None:
    pools: list[dict[str, Any]] = [{"pool_name": "default"}, {"pool_name": "rented", "provider": AWS}]
    (line,) = problems_in(
        parse_master_config, {"host": "127.0.0.1", "checkpoint_storage": storage, "resource_pools": pools}
    )
    assert line.startswith("<config>.resource_pools[1].provider.type: pool 'rented' rents its machines")
    assert "shared_file_system: true" in line and "s3" in line
    pools[1]["shared_file_system"] = True
    assert (
        parse_master_config({"checkpoint_storage": storage, "resource_pools": pools})
        .resource_pools[1]
        .shared_file_system
    )


@pytest.mark.parametrize("storage", [None, {"type": "s3", "bucket": "b"}, {"type": "gcs", "bucket": "b"}])
def test_a_pool_that_rents_machines_keeps_checkpoints_in_a_bucket(storage: dict[str, Any] | None) -> None:
    pools = [{"pool_name": "default", "provider": AWS}]
    config = {"checkpoint_storage": storage, "resource_pools": pools}
    assert parse_master_config(config).resource_pools[0].provider is not None
