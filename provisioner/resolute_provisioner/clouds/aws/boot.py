"""Facts about EC2 for the boot script of a machine."""

from __future__ import annotations

from resolute_provisioner.bootstrap import Metadata

USER_DATA_BYTES = 16 * 1024
"""Most bytes of user data on EC2, before base64."""

METADATA = Metadata(
    notice_source="ec2",
    machine_name="""\
  local base=http://169.254.169.254 token
  token=$(curl -sf --max-time 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$base/latest/api/token") &&
    curl -sf --max-time 5 -H "X-aws-ec2-metadata-token: $token" "$base/latest/meta-data/instance-id\"""",
    most_bytes=USER_DATA_BYTES,
)
