"""The contract: states, messages and their JSON codec, as frozen standard-library dataclasses.

Contains the names and shapes on the network. Must not depend on sockets, SQL or policy.

- `states`      every enum that is stored, shown or sent; one spelling each
- `agent_link`  the messages between master and agent
- `codec`       dataclass <-> JSON, with the proto3 JSON rules of the REST contract
- `times`       which times are accepted from outside
- `rest`        shapes of the REST API
"""
