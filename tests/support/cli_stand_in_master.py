"""A substitute for a master process: it reads its configuration, answers /health and /info, and ends on SIGTERM.

    python cli_stand_in_master.py --config-file master.yaml [--port N] [--host H] [--cluster-state-dir D]

It starts one process like a machine, so that the end of a cluster has a process to end. With a file `fail` in the state directory
it ends at once with a message on stderr.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

import yaml


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers = {
            "/health": {"status": "up", "database": "up"},
            "/info": {"version": "0.1.0", "master_id": "m", "cluster_id": "c", "cluster_name": "stand-in"},
        }
        body = json.dumps(answers.get(self.path, {})).encode()
        self.send_response(200 if self.path in answers else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def start_machine(root: Path) -> None:
    """A process with the marks of a local machine: the variable with its id, and a directory under the pool's."""
    directory = root / "instances" / "machine-1"
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.Popen(
        ["setsid", "sleep", "600"], cwd=directory, env={"RESOLUTE_INSTANCE": "machine-1", "PATH": "/usr/bin:/bin"}
    )


def main() -> None:
    words = sys.argv[1:]
    flags = dict(zip(words[::2], words[1::2], strict=True))
    config = yaml.safe_load(Path(flags["--config-file"]).read_text())
    state = Path(flags.get("--cluster-state-dir") or config["cluster_state_dir"])
    if (state / "fail").exists():
        sys.exit("the stand-in was told to fail")
    host, port = flags.get("--host") or config["host"], int(flags.get("--port") or config["port"])
    server = ThreadingHTTPServer((host, port), Handler)

    def stop(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    start_machine(state / "pools" / "default")
    print("the stand-in is up", flush=True)
    server.serve_forever(poll_interval=0.05)
    print("the stand-in has ended in order", flush=True)


if __name__ == "__main__":
    main()
