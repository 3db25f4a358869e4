"""How the master can be watched: metrics, traces, and what held up its event loop.

Knows the ports at which the other parts tell what they did (listeners of the engine, the store's calls, the API's requests) and
how Prometheus and OpenTelemetry want to be told. Must not decide or change anything: without this package the master does the same.
No label is unbounded: pools, states, reasons, routes and statuses, never an id.

- `observation`    everything together, for the composition root: `Observation`
- `requests`       requests of the API by route and status
- `engine`         cycles, commits and what was decided in them
- `state`          the queue, slots, agents and machines as they are when Prometheus asks
- `ledger`         what paid slot-seconds were spent on
- `store`          the store's calls: `observed(store, ...)`
- `loop_watch`     how late the event loop is, and what ran when it was
- `tracing`        spans from a request to the start of a container
"""
