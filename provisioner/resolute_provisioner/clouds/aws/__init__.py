"""Amazon EC2.

Contains EC2: its configuration, machine types and prices, calls, answers, metadata service. Must not decide anything.

`configuration` is the block `provider` of a pool, `driver` the port of the provider; `catalogue` and the tables contain its machine
types and prices, `request` the requests to EC2 (pure), `calls` the SDK (imported there alone), `cloud` the machines, `prices` EC2's
prices and descriptions of types, `metadata` its facts for the master's machine, `boot` the parameters of the boot script, `notices`
the detection of interruption notices by the agent.
"""
