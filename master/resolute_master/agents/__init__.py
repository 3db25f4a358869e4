"""The agents' endpoint: WebSocket messages on one side, engine commands on the other.

Knows the link's protocol and which agent is connected. Must not know a rule: what a report means is decided by the engine.

- `session`  one connection, from Hello to its end, over any transport
- `hub`      all connections: deliver effects, notice silence
- `credentials`  how an agent authenticates, and the errors otherwise
- `container_spec`  the container that an agent runs, rendered from the state when it is sent
- `websocket`  the aiohttp transport
- `booting`  what a machine is served before its agent runs, and what it may say: `wheel`, made of our own files; a boot that failed
"""
