"""The agents' endpoint: WebSocket messages on one side, engine commands on the other.

Contains the link's protocol and the connected agents. Must not contain a rule: the engine decides what a report means.

- `session`  one connection, from Hello to its end, over any transport
- `hub`      all connections: deliver effects, detect silent agents
- `credentials`  how an agent authenticates, and the errors otherwise
- `container_spec`  the container that an agent runs, rendered from the state when it is sent
- `websocket`  the aiohttp transport
- `booting`  endpoints for a machine whose agent does not run yet: `wheel`, built from our own files, and reports of a failed boot
"""
