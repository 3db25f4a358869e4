"""The released harness's own storage: saves a directory under a uuid, or fetches one. `save|load CONFIG UUID DIRECTORY`."""

from __future__ import annotations

import json
import sys

from determined.common import storage


def main() -> None:
    action, config, uuid, directory = sys.argv[1:]
    manager = storage.build(json.loads(config), container_path=None)
    if action == "save":
        manager.upload(directory, uuid)
    else:
        manager.download(uuid, directory)


main()
