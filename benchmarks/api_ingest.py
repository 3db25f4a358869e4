"""The ingest of `benchmarks.api`: `api_ingest.py PORT TOKEN TRIAL FIRST_STEP REPORTS_A_SECOND SECONDS`.

Four connections send batches of 500 reports at the given rate, or with rate 0 as fast as the master answers. With a rate, the
program prints a line after the first answer; with rate 0 it prints the number of reports per second at the end.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time

from benchmarks.cluster import Client

BATCH = 500
CONNECTIONS = 4
METRICS = {"loss": 0.693147180559, "accuracy": 0.5, "learning_rate": 0.001, "gradient_norm": 1.25}


class Ingest:
    """Sends batches of new steps, each at its scheduled time."""

    def __init__(self, trial: int, first: int, rate: float, seconds: float) -> None:
        self._path = f"/api/v1/trials/{trial}/metrics/batch"
        self._first = first
        self._interval_s = BATCH / rate if rate else 0.0
        self._numbers = itertools.count()
        self._begin = time.monotonic()
        self._end = self._begin + seconds
        self.sent = 0

    def send(self, client: Client, say: bool) -> None:
        for number in self._numbers:
            pause = self._begin + number * self._interval_s - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            if time.monotonic() > self._end:
                return
            client.send("POST", self._path, self._body(self._first + number * BATCH))
            self.sent += BATCH
            if say and number == 0:
                print("begun", flush=True)

    def _body(self, first: int) -> bytes:
        reports = [{"stepsCompleted": step, "metrics": METRICS} for step in range(first, first + BATCH)]
        return json.dumps({"group": "training", "trialRunId": 1, "reports": reports}).encode()


def main(port: int, token: str, trial: int, first: int, rate: float, seconds: float) -> None:
    ingest = Ingest(trial, first, rate, seconds)
    start = time.monotonic()
    senders = [
        threading.Thread(target=ingest.send, args=(_connected(port, token), rate > 0)) for _ in range(CONNECTIONS)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    print(ingest.sent / (time.monotonic() - start), flush=True)


def _connected(port: int, token: str) -> Client:
    client = Client(port, token)
    client.connect()
    return client


if __name__ == "__main__":
    _, port, token, trial, first, rate, seconds = sys.argv
    main(int(port), token, int(trial), int(first), float(rate), float(seconds))
