"""`det deploy local`: starting, finding again and ending a cluster of processes, with a stand-in for the master."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from resolute.config import parse_master_config
from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute_cli import processes
from resolute_cli.invocation import Invocation
from resolute_cli.local_cluster import (
    INSTANCE_VARIABLE,
    cluster_down,
    cluster_up,
    default_directory,
    follow_log,
    read_cluster,
)
from resolute_cli.local_plan import ClusterPlan, master_configuration
from resolute_cli.main import main
from resolute_cli.nouns.deploy_local import instances_for
from resolute_cli.nouns.user import password_weakness
from resolute_cli.passwords import new_password
from resolute_cli.render import Renderer
from support.ports import free_port

STAND_IN = Path(__file__).resolve().parents[2] / "support" / "cli_stand_in_master.py"


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[ClusterPlan]:
    made = ClusterPlan(
        name="test", directory=tmp_path / "cluster", port=free_port(), program=(sys.executable, str(STAND_IN))
    )
    yield made
    if made.directory.is_dir():
        cluster_down(made.directory)


def machines(plan: ClusterPlan) -> list[processes.Identity]:
    return processes.with_variable(INSTANCE_VARIABLE, ["machine-1"], directory=plan.directory)


def wait_for(condition: object, limit_s: float = 20.0) -> None:
    assert callable(condition)
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)


def test_a_cluster_comes_up_and_goes_down_without_a_trace(plan: ClusterPlan) -> None:
    running = cluster_up(plan)
    assert running.lives
    assert running.url == f"http://127.0.0.1:{plan.port}"
    wait_for(lambda: machines(plan))
    assert cluster_down(plan.directory) is True
    assert not running.lives
    assert machines(plan) == []
    assert read_cluster(plan.directory) is None
    assert (plan.directory / "master.log").read_text().splitlines()[-1] == "the stand-in has ended in order"


def test_a_running_cluster_is_left_as_it_is(plan: ClusterPlan) -> None:
    first = cluster_up(plan)
    again = cluster_up(replace(plan, port=free_port()))
    assert (again.master, again.url, again.new_password) == (first.master, first.url, None)


def test_ending_twice_is_no_error(plan: ClusterPlan) -> None:
    cluster_up(plan)
    assert cluster_down(plan.directory) is True
    assert cluster_down(plan.directory) is False


def test_a_cluster_whose_master_was_killed_comes_up_again(plan: ClusterPlan) -> None:
    first = cluster_up(plan)
    os.kill(first.master.pid, signal.SIGKILL)
    wait_for(lambda: not first.lives)
    second = cluster_up(plan)
    assert second.lives
    assert second.master != first.master


def test_machines_of_a_killed_master_are_ended_too(plan: ClusterPlan) -> None:
    running = cluster_up(plan)
    wait_for(lambda: machines(plan))
    os.kill(running.master.pid, signal.SIGKILL)
    wait_for(lambda: not running.lives)
    assert cluster_down(plan.directory) is True
    assert machines(plan) == []


def test_a_process_with_the_same_number_is_not_the_master(plan: ClusterPlan) -> None:
    """A stale file may name a pid that belongs to somebody else by now, here to this very test."""
    plan.directory.mkdir()
    me = processes.identify(os.getpid())
    assert me is not None
    record = {
        "name": "test",
        "url": "http://x",
        "master": {"pid": me.pid, "start_time": me.start_time - 1, "boot": me.boot},
    }
    (plan.directory / "cluster.json").write_text(json.dumps(record))
    assert cluster_down(plan.directory) is False
    assert processes.lives(me)


def test_a_port_in_use_is_named_with_what_to_do(plan: ClusterPlan) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", plan.port))
        taken.listen()
        with pytest.raises(InvalidInput, match=f"port {plan.port} is in use; choose another one with --master-port"):
            cluster_up(plan)
    assert read_cluster(plan.directory) is None


def test_a_master_that_fails_is_quoted_and_nothing_is_left(plan: ClusterPlan) -> None:
    plan.directory.mkdir()
    (plan.directory / "fail").touch()
    with pytest.raises(FailedPrecondition, match="the stand-in was told to fail"):
        cluster_up(plan)
    assert read_cluster(plan.directory) is None
    (plan.directory / "fail").unlink()
    assert cluster_up(plan).lives


def test_the_password_of_a_failed_first_start_is_kept(plan: ClusterPlan) -> None:
    """The database may have been made with it."""
    plan.directory.mkdir()
    (plan.directory / "fail").touch()
    with pytest.raises(FailedPrecondition):
        cluster_up(plan)
    tried = yaml.safe_load((plan.directory / "master.yaml").read_text())["security"]["initial_user_password"]
    (plan.directory / "fail").unlink()
    assert cluster_up(plan).new_password == tried


def test_a_password_is_given_once(plan: ClusterPlan) -> None:
    first = cluster_up(plan)
    assert first.new_password is not None
    assert password_weakness(first.new_password) is None
    cluster_down(plan.directory)
    assert cluster_up(plan).new_password is None
    assert "security" not in yaml.safe_load((plan.directory / "master.yaml").read_text())


def test_a_password_of_ones_own_is_not_repeated(plan: ClusterPlan) -> None:
    assert cluster_up(replace(plan, password="Own12345")).new_password is None
    config = yaml.safe_load((plan.directory / "master.yaml").read_text())
    assert config["security"]["initial_user_password"] == "Own12345"


def test_what_holds_a_password_is_private(plan: ClusterPlan) -> None:
    cluster_up(plan)
    assert stat.S_IMODE(plan.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((plan.directory / "master.yaml").stat().st_mode) == 0o600


def test_deleting_the_state_keeps_the_checkpoints(plan: ClusterPlan) -> None:
    cluster_up(plan)
    (plan.directory / "checkpoints" / "kept").touch()
    cluster_down(plan.directory, delete_state=True)
    assert sorted(path.name for path in plan.directory.iterdir()) == ["checkpoints", "deploy.lock"]
    assert (plan.directory / "checkpoints" / "kept").exists()


def test_a_configuration_of_ones_own_is_used_as_it_is(plan: ClusterPlan, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("port: 1\nhost: 0.0.0.0\n")
    running = cluster_up(replace(plan, own_config=own))
    assert (running.lives, running.new_password) == (True, None)
    assert not (plan.directory / "master.yaml").exists()
    with pytest.raises(InvalidInput, match="--master-config-path"):
        cluster_up(replace(plan, directory=tmp_path / "other", own_config=tmp_path / "none", port=free_port()))


@pytest.mark.parametrize("name", ["", "1st", "a b", "../x", "x" * 64])
def test_names_are_simple(plan: ClusterPlan, name: str) -> None:
    with pytest.raises(InvalidInput, match="--cluster-name"):
        cluster_up(replace(plan, name=name))


def test_the_configuration_is_one_that_a_master_reads(tmp_path: Path) -> None:
    plan = ClusterPlan(
        name="c", directory=tmp_path, port=9000, slots_per_instance=2, max_instances=3, boot_delay_s=1.5, idle_s=20
    )
    config = parse_master_config(master_configuration(plan, new_password()))
    provider = config.resource_pools[0].provider
    assert provider is not None
    assert (config.port, config.host, config.is_loopback) == (9000, "127.0.0.1", True)
    assert (provider.max_instances, provider.min_instances, provider.max_idle_agent_period) == (3, 0, 20.0)


@pytest.mark.parametrize(
    ("processors", "slots", "machines"), [(1, 1, 1), (2, 1, 2), (3, 2, 1), (4, 1, 4), (64, 1, 4), (2, 8, 1)]
)
def test_a_local_pool_has_a_processor_for_each_slot_and_at_most_four_machines(
    processors: int, slots: int, machines: int
) -> None:
    assert instances_for(processors, slots) == machines


def test_the_log_is_followed_to_the_masters_end(plan: ClusterPlan) -> None:
    cluster_up(plan)
    assert "the stand-in is up" in "".join(follow_log(plan.directory, follow=False))
    ended = False

    def end_it(seconds: float) -> None:
        nonlocal ended
        if not ended:
            ended = True
            cluster_down(plan.directory)

    text = "".join(follow_log(plan.directory, follow=True, pause=end_it))
    assert text.splitlines()[-1] == "the stand-in has ended in order"


def test_without_a_cluster_there_is_nothing_to_end_or_show(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cluster directory"):
        cluster_down(tmp_path / "none")
    with pytest.raises(NotFound, match="log of a cluster"):
        list(follow_log(tmp_path, follow=False))


def test_clusters_have_a_directory_by_their_name() -> None:
    assert default_directory("a", {"HOME": "/h"}) == Path("/h/.local/share/resolute/a")
    assert default_directory("a", {"HOME": "/h", "XDG_DATA_HOME": "/d"}) == Path("/d/resolute/a")


def test_a_cluster_that_knows_something_does_not_begin_anew_in_another_database(plan: ClusterPlan) -> None:
    database = {"type": "postgres", "host": "db", "port": 5432, "user": "r", "password": "hidden", "name": "resolute"}
    cluster_up(plan)
    cluster_down(plan.directory)
    with pytest.raises(
        InvalidInput, match=r"keeps its state in SQLite; .* in postgresql://r@db:5432/resolute; leave out --db-url"
    ):
        cluster_up(replace(plan, database=database))
    assert cluster_up(plan).lives


# ---------------------------------------------------------------------------------------------------------- the command


def det(*words: str, home: Path) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    invocation = Invocation(environ={"HOME": str(home)}, render=Renderer(out, err), stdin=io.StringIO())
    return main(words, invocation), out.getvalue(), err.getvalue()


def test_the_command_says_how_to_use_and_end_a_running_cluster(plan: ClusterPlan, tmp_path: Path) -> None:
    running = cluster_up(plan)
    flags = ("--cluster-name", "test", "--dir", str(plan.directory))
    code, out, _ = det("deploy", "local", "cluster-up", *flags, home=tmp_path)
    assert code == 0
    assert "Cluster 'test' is running already." in out
    assert f"export DET_MASTER={running.url}" in out
    assert f"det deploy local cluster-down --cluster-name test --dir {plan.directory}" in out
    code, out, _ = det("deploy", "local", "logs", "--no-follow", *flags, home=tmp_path)
    assert (code, "the stand-in is up" in out) == (0, True)
    code, out, _ = det("deploy", "local", "cluster-down", "--json", *flags, home=tmp_path)
    assert (code, json.loads(out)["ran"]) == (0, True)
    assert not running.lives


def test_a_cluster_that_runs_with_other_flags_says_what_differs(plan: ClusterPlan, tmp_path: Path) -> None:
    cluster_up(replace(plan, max_instances=3))
    flags = ("--cluster-name", "test", "--dir", str(plan.directory))
    same = ("--max-instances", "3", "--master-port", str(plan.port), "--no-gpu")
    assert det("deploy", "local", "cluster-up", *flags, *same, home=tmp_path)[0] == 0
    other = ("--max-instances", "2", "--tls", "--storage-host-path", str(tmp_path))
    code, _, err = det("deploy", "local", "cluster-up", *flags, *other, home=tmp_path)
    assert code == 1
    told = [line.strip() for line in err.splitlines()]
    assert told[1:4] == [
        "--max-instances is 3, not 2",
        f"--storage-host-path is not given, not {tmp_path}",
        "it was started without --tls",
    ]
    assert f"det deploy local cluster-down --cluster-name test --dir {plan.directory}" in told[4]
    code, _, err = det("deploy", "local", "master-up", *flags, home=tmp_path)
    assert (code, "it was started by cluster-up, not by master-up" in err) == (1, True)
    assert read_cluster(plan.directory) is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cluster-up", "--db-password", "x"), "--db-password: requires --db-url"),
        (("master-up", "--initial-user-password", "short"), "--initial-user-password is too weak"),
        (
            ("cluster-up", "--det-version", "0.38.1"),
            "--det-version 0.38.1: master and agent are of the installed package",
        ),
        (("agent-up", "m", "--det-version", "9"), "--det-version 9"),
        (("master-up", "--image-repo-prefix", "us"), "--image-repo-prefix: master and agent run as processes"),
        (("agent-up", "m", "--enterprise-edition"), "--enterprise-edition"),
        (
            ("cluster-up", "--master-config-path", "m.yaml", "--gpu"),
            "--gpu applies to the generated configuration only",
        ),
        (
            ("master-up", "--master-config-path", "m.yaml", "--db-url", "x"),
            "--db-url applies to the generated configuration only",
        ),
        (("agent-down", "--all", "--agent-name", "a"), "--all and --agent-name"),
    ],
)
def test_flags_that_do_not_go_together_are_named(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    code, _, err = det("deploy", "local", *words, home=tmp_path)
    assert (code, said in err) == (2, True), err


def test_an_agent_that_cannot_be_is_explained(tmp_path: Path) -> None:
    code, _, err = det("deploy", "local", "agent-down", "--agent-name", "none", home=tmp_path)
    assert (code, "agent 'none' not found; this cluster has none on this machine" in err) == (1, True)
    assert det("deploy", "local", "agent-down", "--all", home=tmp_path)[0] == 0
    where = ("--join-token-file", str(tmp_path / "token"), "--no-gpu")
    code, _, err = det("deploy", "local", "agent-up", "m", "--agent-name", "a/b", *where, home=tmp_path)
    assert (code, "--agent-name 'a/b'" in err) == (1, True)
    code, _, err = det("deploy", "local", "agent-up", "m", "--agent-config-path", "none.yaml", *where, home=tmp_path)
    assert (code, "--agent-config-path: there is no file 'none.yaml'" in err) == (1, True)
    (tmp_path / "agent.yaml").write_text("resource_pol: x\n")
    config = ("--agent-config-path", str(tmp_path / "agent.yaml"))
    code, _, err = det("deploy", "local", "agent-up", "m", *config, *where, home=tmp_path)
    assert (code, "resource_pol" in err and "resource_pool" in err) == (1, True)


def test_the_command_refuses_what_cannot_be(tmp_path: Path) -> None:
    assert det("deploy", "local", "cluster-up", "--max-instances", "0", home=tmp_path)[0] == 2
    code, _, err = det("deploy", "local", "cluster-down", "--dir", str(tmp_path / "none"), home=tmp_path)
    assert code == 1
    assert err.startswith("Failed to end a cluster: cluster directory")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = det(
            "deploy", "local", "cluster-up", "--dir", str(tmp_path / "c"), "--master-port", port, home=tmp_path
        )
    assert (code, f"port {port} is in use" in err) == (1, True)
