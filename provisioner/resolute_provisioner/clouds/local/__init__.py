"""The cloud on this computer: each machine is a directory and a detached process.

Uses processes and files of this computer. Must not decide anything.

`configuration` is the block `provider` of a pool, `driver` the port of the provider; `cloud` the machines, `files` their records,
`host` the process of each machine. `python -m resolute_provisioner.clouds.local` lists, interrupts and ends them.
"""
