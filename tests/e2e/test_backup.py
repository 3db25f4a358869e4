"""Backup and restore, by the commands of docs/production.md, of a cluster that serves meanwhile and is lost afterwards."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from resolute.errors import NotFound
from support.live import LiveCluster, live_cluster, until
from support.new_db import NewDb

PAGE = Path(__file__).parents[2] / "docs" / "production.md"

PROGRAM = """
from resolute import core
with core.init() as context:
    print("the work of", context.info.trial.experiment_id, flush=True)
    first = 0
    if context.info.latest_checkpoint:
        with context.checkpoint.restore_path(context.info.latest_checkpoint) as path:
            first = int((path / "step").read_text())
        print("goes on from", first, flush=True)
    for step in range(first + 1, 2001):
        if step == 5 or context.preempt.should_preempt():
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "step").write_text(str(step))
            if step > 5:
                break
        context.train.report_training_metrics(step, {"loss": 1 / step})
        if STEPS == step:
            break
        __import__("time").sleep(0.02)
"""


def commands(what: str) -> str:
    """A block of the page, by the comment before it."""
    found = re.search(rf"<!-- {what} -->\n```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, what
    return found.group(1)


def perform(what: str, cluster: LiveCluster, backup: Path) -> None:
    """As the page has it, but for the places, which are this cluster's."""
    db: Any = cluster.config.get("db")
    script = commands(f"{what}: {'postgres' if db else 'sqlite'}")
    places = {"STATE": cluster.directory / "state", "BACKUP": backup}
    if db:
        places["DATABASE"] = (
            f"postgresql://{db['user']}:{quote(db['password'], safe='')}@{db['host']}:{db['port']}/{db['name']}"
        )
    for name, place in places.items():
        script, count = re.subn(rf"\b{name}=\S+", f"{name}='{place}'", script)
        assert count == 1, f"the block sets {name}"
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def an_experiment(cluster: LiveCluster, directory: Path, steps: int) -> Any:
    directory.mkdir()
    (directory / "train.py").write_text(f"STEPS = {steps}\n{PROGRAM}")
    config = {
        "name": directory.name,
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss", "max_length": 2000},
        "max_restarts": 0,
    }
    return cluster.client.create_experiment(config, directory)


def _removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def lose_everything(cluster: LiveCluster, new_db: NewDb) -> None:
    """The machine of the master is gone, with its disk; of a database server, the database is empty again."""
    cluster.kill_master()
    # Machines of the local pool are processes beside the master: they write below its directory until they are gone as well.
    until("the directory is gone", lambda: _removed(cluster.directory / "state"))
    config = cluster.config.get("db")
    if config:
        cluster.config["db"] = dict(new_db())["db"]
        cluster.config_file.write_text(yaml.safe_dump(cluster.config))


def test_a_restored_cluster_has_what_the_backup_had_and_goes_on(tmp_path: Path, every_new_db: NewDb) -> None:
    provider = {"type": "local", "slots_per_instance": 1, "max_instances": 2, "max_idle_agent_period": "1s"}
    with live_cluster(tmp_path / "cluster", pool={"provider": provider}, **every_new_db()) as cluster:
        ended = an_experiment(cluster, tmp_path / "ended", steps=10)
        until("it has ended", lambda: ended.reload() or ended.state == "COMPLETED")
        paused = an_experiment(cluster, tmp_path / "paused", steps=0)
        until("it has saved", lambda: paused.list_checkpoints())
        paused.pause()
        (trial,) = paused.list_trials()
        until("it has stopped", lambda: trial.list_allocations()[-1].end_time is not None)
        until("its machines have ended", lambda: not cluster.client.queue.pools()[0].num_agents)
        saved = max(found.metadata["steps_completed"] for found in paused.list_checkpoints())
        perform("backup", cluster, tmp_path / "backup")
        later = an_experiment(cluster, tmp_path / "later", steps=3)
        until("it has ended", lambda: later.reload() or later.state == "COMPLETED")
        until("its machines have ended", lambda: not cluster.client.queue.pools()[0].num_agents)
        lose_everything(cluster, every_new_db)
        perform("restore", cluster, tmp_path / "backup")
        cluster.start()
        # The login of before still counts: the sealing key was restored with the database.
        ended.reload()
        assert ended.state == "COMPLETED"
        (first,) = ended.list_trials()
        assert "the work of 1" in "".join(first.iter_logs())
        assert [report.total_batches for report in first.iter_metrics("training")] == list(range(1, 11))
        (checkpoint,) = ended.list_checkpoints()
        assert (checkpoint.download(tmp_path / "fetched") / "step").read_text() == "5"
        assert is_unknown(cluster, later.id)
        paused.reload()
        assert paused.state == "PAUSED"
        paused.activate()
        (trial,) = paused.list_trials()
        until("it goes on", lambda: f"goes on from {saved}" in "".join(trial.iter_logs()))
        paused.kill()
        until("it has ended", lambda: paused.reload() or paused.state == "CANCELED")
    assert cluster.left_over() == []


def is_unknown(cluster: LiveCluster, experiment: int) -> bool:
    try:
        cluster.client.get_experiment(experiment)
    except NotFound:
        return True
    return False
