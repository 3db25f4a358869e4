"""Amazon EC2.

Knows EC2: its configuration, machine types and prices, calls, answers, metadata service. Must not decide anything.

`configuration` is the block `provider` of a pool, `driver` what that comes to; `catalogue` and the tables its machine types and
prices, `request` what is asked of EC2 (pure), `calls` the SDK (imported there alone), `cloud` the machines, `prices` what EC2 tells
of prices and types, `metadata` what it tells the master's machine, `boot` what the boot script needs, `notices` where a
machine's agent learns of its end.
"""
