"""Which contract is spoken."""

from __future__ import annotations

CONTRACT_VERSION = "0.38.1"
"""What clients of the contract compare their own version with. With ours instead, they would advise on every command to
upgrade a master that understands all they say; and they hold the agents' versions against the master's."""
