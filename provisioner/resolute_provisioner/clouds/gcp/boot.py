"""Facts about Google Compute Engine for the boot script of a machine."""

from __future__ import annotations

from resolute_provisioner.bootstrap import Metadata

METADATA_VALUE_BYTES = 256 * 1024
"""Most bytes of one metadata value on Google Compute Engine."""

METADATA = Metadata(
    notice_source="gce",
    machine_name="""\
  curl -sf --max-time 5 -H 'Metadata-Flavor: Google' http://169.254.169.254/computeMetadata/v1/instance/name""",
    most_bytes=METADATA_VALUE_BYTES,
)
