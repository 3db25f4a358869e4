"""Machines of the operator's own, turned on and off by the operator's own programs: IPMI, wake-on-LAN, a rack's controller.

Knows three programs and the names of the machines. Must not decide anything.

`configuration` is the block `provider` of a pool, `driver` what that comes to, `programs` runs the operator's programs, `machines`
keeps which machine was given to which request, `cloud` obeys the cloud port with both, `boot` is what the boot script needs, `fake`
a rack of made-up machines for the conformance suite.
"""
