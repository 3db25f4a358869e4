"""The version of the contract."""

from __future__ import annotations

CONTRACT_VERSION = "0.38.1"
"""The version with which clients of the contract compare their own. With our version, they would advise to upgrade the master on
every command; they also compare the agents' versions with the master's."""
