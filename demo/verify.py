"""Checks the demonstration: a separate script that does not rely on the demonstration's own output.

    python -m demo.verify observe URL EXPERIMENT --login FILE --into DIRECTORY
    python -m demo.verify judge FOLDER [--kept]

`observe` reads only the REST API while the cluster runs, with the small client below, until the experiment has ended and the pool
is empty. `judge` runs after the shutdown: it compares the observations with the files of the machines, the checkpoints, the
uninterrupted run and the list of processes. It prints one line per claim, and exits with 0 only if every claim holds. With `--kept`
the master may still run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from demo.claims import judge
from demo.evidence import read_evidence

LOOK_S = 1.0
LIMIT_S = 300.0
ANSWER_S = 20.0
ENDED = ("STATE_COMPLETED", "STATE_CANCELED", "STATE_ERROR", "STATE_DELETED")
NO_MACHINE = ("gone", "refused")


class Api:
    """GET requests with a token: single responses, and streams with one JSON object per line."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    def get(self, path: str, **query: object) -> Any:
        with self._open(path, query) as answer:
            return json.load(answer)

    def stream(self, path: str, **query: object) -> Iterator[Any]:
        with self._open(path, query) as answer:
            for line in answer:
                if line.strip():
                    yield json.loads(line)["result"]

    def _open(self, path: str, query: dict[str, object]) -> Any:
        words = f"?{urllib.parse.urlencode(query)}" if query else ""
        request = urllib.request.Request(
            f"{self._url}/api/v1/{path}{words}", headers={"Authorization": f"Bearer {self._token}"}
        )
        return urllib.request.urlopen(request, timeout=ANSWER_S)


def token_of(login: Path, url: str) -> str:
    """A client with the token in the command line's file of logins."""
    entry = json.loads(login.read_text())["masters"][url]
    return str(entry["tokens"][entry["active_user"]])


# ----------------------------------------------------------------------------------------------------------- observing


def observe(api: Api, experiment: int, into: Path) -> int:
    """Writes `timeline.jsonl` (changes with times) and at the end `final.json`. Returns 1 if the end did not come in time, else
    0."""
    into.mkdir(parents=True, exist_ok=True)
    started, last = time.monotonic(), ""
    with (into / "timeline.jsonl").open("a") as timeline:
        while time.monotonic() - started < LIMIT_S:
            state = api.get(f"experiments/{experiment}")["experiment"]["state"]
            machines = {one["id"]: one["state"] for one in api.get("instances")["instances"]}
            changed = json.dumps({"experiment": state, "machines": machines}, sort_keys=True)
            if changed != last:
                last = changed
                timeline.write(
                    json.dumps({"after_s": round(time.monotonic() - started, 2), **json.loads(changed)}) + "\n"
                )
                timeline.flush()
            if state in ENDED and all(one in NO_MACHINE for one in machines.values()):
                (into / "final.json").write_text(json.dumps(everything(api, experiment), indent=1))
                return 0
            time.sleep(LOOK_S)
    print(f"the experiment or the pool has not come to an end within {LIMIT_S:.0f} s", file=sys.stderr)
    return 1


def everything(api: Api, experiment: int) -> dict[str, Any]:
    """All API responses that the claims use."""
    trial = api.get(f"experiments/{experiment}/trials")["trials"][0]
    id_ = trial["id"]
    return {
        "experiment": api.get(f"experiments/{experiment}")["experiment"],
        "trial": trial,
        "allocations": api.get(f"trials/{id_}/allocations")["allocations"],
        "checkpoints": api.get(f"trials/{id_}/checkpoints")["checkpoints"],
        "training": reports(api, id_, "training"),
        "validation": reports(api, id_, "validation"),
        "trial_log": [str(line.get("log") or line.get("message")) for line in api.stream(f"trials/{id_}/logs")],
        "instances": api.get("instances")["instances"],
        "decisions": api.get("decisions")["decisions"],
        "ledger": api.get("ledger"),
    }


def reports(api: Api, trial: int, group: str) -> list[Any]:
    stream = api.stream("trials/metrics/trial_metrics", trialIds=trial, group=group)
    return [report for batch in stream for report in batch["metrics"]]


# ------------------------------------------------------------------------------------------------------------- judging


def report_result(root: Path, *, kept: bool) -> int:
    """Returns 0 if every claim holds, 1 if one does not, 2 if the evidence cannot be read."""
    try:
        evidence = read_evidence(root, master_may_live=kept)
    except (OSError, ValueError, LookupError) as error:
        print(f"FAILED  the evidence cannot be read: {error!r}")
        return 2
    claims = judge(evidence)
    for claim in claims:
        print(f"{'ok    ' if claim.holds else 'FAILED'}  {claim.text}\n        {claim.seen}")
    failed = sum(not claim.holds for claim in claims)
    print(f"{len(claims) - failed} of {len(claims)} claims hold")
    return 1 if failed else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.verify", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    observing = commands.add_parser("observe", help="read the API until the end")
    observing.add_argument("url")
    observing.add_argument("experiment", type=int)
    observing.add_argument("--login", type=Path, required=True)
    observing.add_argument("--into", type=Path, required=True)
    judging = commands.add_parser("judge", help="check every claim")
    judging.add_argument("folder", type=Path)
    judging.add_argument("--kept", action="store_true")
    given = parser.parse_args(arguments)
    if given.command == "observe":
        return observe(Api(given.url, token_of(given.login, given.url)), given.experiment, given.into)
    return report_result(given.folder.resolve(), kept=given.kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
