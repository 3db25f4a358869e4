"""`python -m support.gce_metadata_main VALUES.json`: the metadata server of one machine, at its own address in a network
namespace. The server reads the file at each request, so that a test can change the values."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from support.gce_metadata import FakeMetadata

ADDRESS = ("169.254.169.254", 80)

if __name__ == "__main__":
    server = FakeMetadata({}, address=ADDRESS)
    told: dict[str, str] = {}
    while True:
        values: dict[str, str] = json.loads(Path(sys.argv[1]).read_text())
        for name, value in values.items():
            if told.get(name) != value:
                server.set(name, value)
        told = values
        time.sleep(0.05)
