"""The slots of this machine: what there is, asked of the vendors' tools.

Knows GPUs, MIG instances and how each vendor's tool says what is wrong. Must not know what a slot is used for.

- `detection`     `detect(...)`: the devices for a slot type; `keep_numbers` for a machine that is looked at again
- `nvidia`        pure: listings of NVML and of `nvidia-smi` to devices
- `rocm`          pure: listings of `rocm-smi` and of `amd-smi` to devices
- `nvml_listing`  the small program that asks NVML, in a process of its own
- `tools`         running a vendor's tool with a limit, and what its errors mean
"""

from __future__ import annotations
