"""The slots of this machine, listed by the vendors' tools.

Contains GPUs, MIG instances and the errors of each vendor's tool. Must not depend on the use of a slot.

- `detection`     `detect(...)`: the devices for a slot type; `keep_numbers` for a repeated detection
- `nvidia`        pure: listings of NVML and of `nvidia-smi` to devices
- `rocm`          pure: listings of `rocm-smi` and of `amd-smi` to devices
- `nvml_listing`  the small program that queries NVML, in a separate process
- `tools`         runs a vendor's tool with a time limit, and explains its errors
"""

from __future__ import annotations
