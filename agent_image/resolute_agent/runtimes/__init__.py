"""How containers are run: one port (`base`), its implementations `process`, `docker` and `scripted`.

- `docker`          the port over a Docker engine; `docker_engine` is the edge to it, `docker_follow` one container's life
- `docker_request`  pure: the requests to the engine; `docker_output` pure: the output of a container from the engine's stream
- `docker_watch`    the small process that carries out leases and kills also without an agent

Contains processes, namespaces, engines and output files. Must not depend on the link, the master or what a task computes.
"""

from __future__ import annotations
