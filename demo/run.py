"""One demonstration from the first process to the result."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path

from rich.console import Console

from demo import bucket, cluster, director, scenario
from demo.cluster import Companion
from demo.folder import Folder
from demo.pictures import Picture, Watcher
from demo.view import Screen, interruption_lines, ledger_table
from resolute import printable
from resolute.client.sdk import Resolute
from resolute.clock import Clock, SystemClock
from resolute.errors import Unavailable
from resolute_cli.local_cluster import RunningCluster

LIMIT_S = 240.0
"""Time limit of a demonstration. At the limit it is ended, and the checks use the evidence up to then."""
LOOK_S = 0.25
LOSSES_EVERY = 4  # looks
COMPANION_S = 90.0


def run(folder: Folder, console: Console, *, keep: bool, in_bucket: bool = False) -> bool:
    """Returns whether every claim holds. Raises `ResoluteError` if the demonstration itself fails.

    `in_bucket` stores the checkpoints in a local S3.
    """
    return _Run(folder, console, SystemClock()).run(keep=keep, in_bucket=in_bucket)


class _Run:
    def __init__(self, folder: Folder, console: Console, clock: Clock) -> None:
        self._folder = folder
        self._console = console
        self._clock = clock
        self._started = clock.monotonic()
        self._screen = Screen(console=console)
        self._companions: list[Companion] = []
        self._reference: Companion | None = None

    @property
    def _elapsed_s(self) -> float:
        return self._clock.monotonic() - self._started

    def run(self, *, keep: bool, in_bucket: bool) -> bool:
        try:
            self._folder.create()
            if in_bucket:
                self._companions.append(bucket.start(self._folder))
                self._print("an S3 on this machine keeps the checkpoints")
            running, password = cluster.start(self._folder, bucket.configured(self._folder))
            self._print(f"a master serves {running.url}; its folder is {self._folder.root}")
            cluster.log_in(self._folder, running.url, password)
            self._print(f"$ det {shlex.join(scenario.submission())}")
            experiment = cluster.submit(self._folder, running.url)
            self._print(
                f"its page: {running.url}/det/experiments/{experiment} (log in as {scenario.USER}, password {password})"
            )
            observer = self._companion("observer", ["demo.verify", "observe", *self._observed(running, experiment)])
            api = cluster.client(self._folder, running.url)
            last = self._watch(api, experiment)
            self._check_completed(api, last, experiment)
            self._console.print(ledger_table(ledger := api.cluster.ledger()))
            for line in interruption_lines(ledger):
                self._console.print(f"  {printable.one_line(line)}", highlight=False, markup=False, soft_wrap=True)
            self._wait_for(observer)
            if self._reference is not None:
                self._wait_for(self._reference)
            if in_bucket:
                bucket.fetch(self._folder)
                self._print("the content of the bucket was downloaded for the checks")
                self._companions[0].end()
            if not keep:
                cluster.end(self._folder)
                self._print("the master has ended")
            proven = self._judge(keep)
            if keep:
                self._say_how_to_use(running, password)
            return proven
        finally:
            for companion in self._companions:
                companion.end()

    def _print(self, text: str) -> None:
        self._screen.say(text, elapsed_s=self._elapsed_s)

    def _companion(self, name: str, words: list[str]) -> Companion:
        companion = Companion(name, words, self._folder.root / f"{name}.log")
        self._companions.append(companion)
        return companion

    def _observed(self, running: RunningCluster, experiment: int) -> list[str]:
        login = str(self._folder.login / "auth.json")
        return [running.url, str(experiment), "--login", login, "--into", str(self._folder.observed)]

    # ---------------------------------------------------------------------------------------------------- watching

    def _watch(self, api: Resolute, experiment: int) -> Picture:
        """Runs until the experiment has ended and the pool is empty. Returns the last picture."""
        watcher, plot, looks = Watcher(api, experiment), director.Plot(), 0
        with self._screen:
            while True:
                picture = watcher.look(with_losses=looks % LOSSES_EVERY == 0)
                looks += 1
                plot, order = director.decide(plot, picture)
                self._screen.next_text = plot.next_text
                self._screen.show(picture, elapsed_s=self._elapsed_s, now=self._clock.now())
                if order is not None:
                    self._carry_out(order, picture)
                self._start_reference_when_possible(picture)
                for companion in self._companions:
                    companion.check()
                if picture.ended and not picture.living:
                    return picture
                if self._elapsed_s > LIMIT_S:
                    raise Unavailable(f"it is not through after {LIMIT_S:.0f} s; see master.log in {self._folder.root}")
                time.sleep(LOOK_S)

    def _carry_out(self, order: director.Order, picture: Picture) -> None:
        cut = order.cut
        how = "without notice" if cut.notice_s is None else f"with {cut.notice_s:g} s of notice"
        self._print(f"step {picture.steps}: {order.instance_id} is taken away {how}")
        cluster.interrupt(self._folder, order.instance_id, cut.notice_s)

    def _start_reference_when_possible(self, picture: Picture) -> None:
        """The trial's seed, which the master drew and every checkpoint contains."""
        if self._reference is None:
            bucket.fetch(self._folder)
        saved = sorted(self._folder.checkpoints.glob("*/trainer.json"))
        saved = [path for path in saved if not path.parent.name.endswith(".partial")]
        if self._reference is not None or picture.trial is None or not saved:
            return
        seed = json.loads(saved[0].read_text())["trial_seed"]
        hparams = self._folder.reference / "hparams.json"
        hparams.write_text(json.dumps(dict(picture.trial.hparams)))
        words = ["demo.reference", "--model", str(scenario.EXAMPLE), "--hparams", str(hparams)]
        words += ["--seed", str(seed), "--steps", str(scenario.STEPS), "--output", str(self._folder.reference)]
        self._reference = self._companion("reference", words)
        self._print("beside it, the same training starts without a cluster, to compare every loss with")

    def _check_completed(self, api: Resolute, picture: Picture, experiment: int) -> None:
        self._print(f"experiment {experiment} {picture.state.lower()}; the pool has no machine any more")
        if picture.state == "COMPLETED" or picture.trial is None:
            return
        exits = [one.exit_reason for one in api.trials.allocations(picture.trial.id) if one.exit_reason]
        raise Unavailable(
            f"experiment {experiment} ended as {picture.state}: {'; '.join(exits) or 'no run was started'}"
        )

    def _wait_for(self, companion: Companion) -> None:
        if companion.code is None:
            self._print(f"waiting for the {companion.name}")
        companion.wait(COMPANION_S)

    # ---------------------------------------------------------------------------------------------------- the result

    def _judge(self, keep: bool) -> bool:
        words = ["demo.verify", "judge", str(self._folder.root), *(["--kept"] if keep else [])]
        judge = self._companion("judge", words)
        try:
            judge.wait(COMPANION_S)
            proven = True
        except Unavailable:
            if judge.code is None:
                raise
            proven = False
        self._console.print(
            f"\n{Path(self._folder.root, 'judge.log').read_text(errors='replace').rstrip()}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        self._print("every claim is proven" if proven else "NOT every claim is proven")
        return proven

    def _say_how_to_use(self, running: RunningCluster, password: str) -> None:
        root = shlex.quote(str(self._folder.root))
        login = shlex.quote(str(self._folder.login))
        self._console.print(
            f"""
The cluster is still there. Its pages: {running.url}/det/ (log in as {scenario.USER}, password {password}); submit another
experiment and watch its machines start, its curves grow and the queue explain itself. `make showcase` shows the same pages
with months of work. To use the cluster in another terminal:

  export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH
  export DET_MASTER={running.url} DET_DEBUG_CONFIG_PATH={login}
  det experiment list; det trial logs 1; det ledger; det decisions; det instance list
  cd {shlex.quote(str(scenario.EXAMPLE))} && det experiment create const.yaml . -f

To end it:

  det deploy local cluster-down --cluster-name demo --dir {root}
""",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
