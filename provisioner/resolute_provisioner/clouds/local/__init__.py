"""The cloud on this computer: each machine is a directory and a detached process.

Knows processes and files of this computer. Must not decide anything.

`configuration` is the block `provider` of a pool, `driver` what that comes to; `cloud` the machines, `files` what is kept of them,
`host` the process that each machine lives in. `python -m resolute_provisioner.clouds.local` lists, interrupts and ends them.
"""
