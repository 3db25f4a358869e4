"""The operator's own machines, turned on and off by the operator's programs: IPMI, wake-on-LAN, a rack's controller.

Contains three programs and the names of the machines. Must not decide anything.

`configuration` is the block `provider` of a pool, `driver` the port of the provider, `programs` runs the operator's programs,
`machines` records which request got which machine, `cloud` implements the cloud port with both, `boot` has the parameters of the
boot script, `fake` a rack of simulated machines for the conformance suite.
"""
