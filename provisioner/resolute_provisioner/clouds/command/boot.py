"""Facts about the operator's own machines for their boot script."""

from __future__ import annotations

from resolute_provisioner.bootstrap import Metadata

SCRIPT_BYTES = 1024 * 1024
"""Most bytes of a script; the programs are given it as their input, which has no limit of its own."""

METADATA = Metadata(machine_name="  hostname", most_bytes=SCRIPT_BYTES, keeps_disk=True)
