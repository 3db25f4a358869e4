"""Writers of checkpoints that are killed with SIGKILL at seeded moments: `CONFIG KILLS SEED`. Prints each committed checkpoint, and
with a minus each removed one. One process loads the clients, and each writer is a fork of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from typing import Any, NoReturn

from resolute.storage import FileEntry, Manifest, s3, storage_from_config
from resolute.storage.manifest import describe_file

MOST_SAVES = 2
"""Maximum number of committed checkpoints before a writer is killed during the next one."""

FIRST_SAVE_S = 0.1
"""Assumed duration of a save before the first one; later the duration of the slowest one is used."""

PART_BYTES = 5 * 1024**2
"""Minimum of S3, so that a file of moderate size is uploaded in parts."""


def main() -> None:
    config, kills, seed = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    s3.PART_BYTES = PART_BYTES
    storage_from_config(config, shared_fs_mount=None).check_writable()
    draw, save_s = random.Random(seed), FIRST_SAVE_S
    for attempt in range(kills):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _save_all_the_time(config, attempt, writer)
        os.close(writer)
        with open(reader, "rb") as said:
            assert said.readline() == b"begun\n"
            lines: list[bytes] = []
            for _ in range(draw.randint(0, MOST_SAVES)):
                began = time.monotonic()
                lines.append(said.readline())
                save_s = max(save_s, time.monotonic() - began)
            time.sleep(draw.uniform(0, save_s))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            for line in [*lines, *said.read().splitlines(keepends=True)]:
                if line.endswith(b"\n"):
                    print(line.decode(), end="", flush=True)


def _save_all_the_time(config: dict[str, Any], attempt: int, said: int) -> NoReturn:
    storage = storage_from_config(config, shared_fs_mount=None)
    sizes = [1000, 70_000, 3, 2 * PART_BYTES + 1 if config["type"] == "s3" else 300_000]
    os.write(said, b"begun\n")
    number = 0
    while True:
        uuid = f"{attempt:04}-{number:04}"
        staged = storage.stage(uuid, "rank-0")
        files: dict[str, FileEntry] = {}
        for place, size in enumerate(sizes if number % 2 else sizes[:3]):
            path = staged / f"part-{place}"
            path.write_bytes(os.urandom(min(size, 4096)) * (size // 4096 + 1))
            files[path.name] = describe_file(path)
        storage.put(uuid, "rank-0", files)
        manifest = Manifest(
            uuid=uuid,
            steps_completed=number,
            trial_id=1,
            trial_run_id=attempt,
            world_size=1,
            created="2026-01-01T00:00:00Z",
            parent=None,
            files=files,
        )
        storage.commit(uuid, manifest.to_bytes())
        os.write(said, f"{uuid}\n".encode())
        if number % 3 == 2:
            storage.delete(uuid)  # Its shutdown is killed as well.
            os.write(said, f"-{uuid}\n".encode())
        number += 1


if __name__ == "__main__":
    main()
