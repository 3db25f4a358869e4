"""A hostile task: it prints its tokens, makes the calls of its plan with them, and tries to read files.

Runs in a container as `python3 -m hostile.task` from its uploaded context, next to `plan.json`. Each line of output is one JSON
object after `reported `. Standard library only.
"""

from __future__ import annotations

import base64
import glob
import http.client
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ANSWER_BYTES = 1024 * 1024
WAIT_S = 30
EVERY_S = 0.005


def tell(**values: Any) -> None:
    print("reported " + json.dumps(values), flush=True)


def ask(address: str, request: dict[str, Any]) -> dict[str, Any]:
    """The status of a call, 0 without a response, and which of the given words the response contains; the campaign checks them."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=1 if request["waits"] else WAIT_S)
    headers = {key: value for key, value in request["headers"] if value.isascii()}
    if request["token"] == "task":
        headers["Grpc-Metadata-x-allocation-token"] = "Bearer " + os.environ["DET_SESSION_TOKEN"]
    else:
        headers["Authorization"] = "Bearer " + os.environ["DET_USER_TOKEN"]
    body = None if request["body"] is None else base64.b64decode(request["body"])
    try:
        connection.request(request["method"], request["path"], body=body, headers=headers)
        with connection.getresponse() as response:
            said = response.read(ANSWER_BYTES)
            return {"status": response.status, "shown": [word for word in request["words"] if word.encode() in said]}
    except (OSError, http.client.HTTPException, ValueError) as error:
        return {"status": 0, "failure": type(error).__name__}
    finally:
        connection.close()


def readable(pattern: str, word: str) -> list[str]:
    """The seeded secrets in the readable files of a pattern."""
    found: set[str] = set()
    for path in glob.glob(pattern):
        try:
            with open(path, "rb") as file:
                said = file.read(ANSWER_BYTES)
        except OSError:
            continue
        found |= {match.decode() for match in re.findall(re.escape(word.encode()) + rb"\d+", said)}
    return sorted(found)


def main() -> int:
    tell(session=os.environ["DET_SESSION_TOKEN"], user=os.environ["DET_USER_TOKEN"])
    plan = json.loads((Path(__file__).resolve().parent / "plan.json").read_text())
    for pattern in plan["files"]:
        tell(pattern=pattern, read=readable(pattern, plan["words"][0]))
    for number, request in enumerate(plan["requests"]):
        tell(number=number, **ask(os.environ["DET_MASTER"], {**request, "words": plan["words"]}))
        time.sleep(EVERY_S)
    tell(over=len(plan["requests"]))
    time.sleep(plan["stay_s"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
