"""`python -m support.imds_main VALUES.json`: the metadata service of one machine, at its own address in a network namespace.
The server reads the file at each request, so that a test can change the values."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from support.imds import imds

ADDRESS = ("169.254.169.254", 80)

if __name__ == "__main__":
    with imds(ADDRESS) as service:
        while True:
            service.values = json.loads(Path(sys.argv[1]).read_text())
            time.sleep(0.05)
