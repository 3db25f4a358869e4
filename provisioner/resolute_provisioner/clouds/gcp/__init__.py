"""Google Compute Engine.

Knows Compute Engine: its configuration, machine types and prices, calls, answers, metadata server. Must not decide anything.

`configuration` is the block `provider` of a pool, `driver` what that comes to; `catalogue` and the tables its machine types and
prices, `request` what is asked for (pure), `calls` the SDK (imported there alone), `cloud` the machines, `metadata` what it tells
the master's machine, `boot` what the boot script needs, `notices` where a machine's agent learns of its end.
"""
