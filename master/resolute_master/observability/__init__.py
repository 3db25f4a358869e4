"""Observability of the master: metrics, traces, and the causes of stalls of its event loop.

Uses the ports at which the other parts report (listeners of the engine, the store's calls, the API's requests) and the formats of
Prometheus and OpenTelemetry. Must not decide or change anything: without this package the master does the same. No label is
unbounded: pools, states, reasons, routes and statuses, never an id.

- `observation`    everything together, for the composition root: `Observation`
- `requests`       requests of the API by route and status
- `engine`         cycles, commits and their decisions
- `state`          the queue, slots, agents and machines at the time of a scrape
- `ledger`         paid slot-seconds by account
- `store`          the store's calls: `observed(store, ...)`
- `loop_watch`     the delay of the event loop, and what ran during a stall
- `run_queue`      the time for which a thread has waited for a processor
- `spending`       the accounts and budgets of pools and workspaces
- `tracing`        spans from a request to the start of a container; `spans` on the OpenTelemetry SDK
"""
