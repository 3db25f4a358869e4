"""Comparison of agents' secrets, and the errors for wrong ones.

A refusal ends with the command that mends it: the agent prints it, on the machine where it has to be mended.
"""

from __future__ import annotations

import hashlib
import hmac

from resolute.errors import PermissionDenied

HOW_TO_JOIN = (
    "run `det agent join-token` as an administrator, put the token as join_token (or its file as join_token_file) into the "
    "agent's configuration, /etc/determined/agent.yaml by default, and start the agent again"
)


def same(expected: str, given: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(expected.encode(), given.encode())


def digest_of(credential: str) -> str:
    """What the master keeps of a credential. Credentials are 256 random bits, so a plain hash cannot be guessed back."""
    return hashlib.sha256(credential.encode()).hexdigest() if credential else ""


def wrong_token() -> PermissionDenied:
    return PermissionDenied(f"join_token: missing, or not the one of this cluster; {HOW_TO_JOIN}")


def wrong_token_of_machine(instance_id: str) -> PermissionDenied:
    return PermissionDenied(
        f"join_token: not the one that this master gave to machine '{instance_id}'; if this machine is none of a cloud pool, "
        f"remove instance_id from its configuration, {HOW_TO_JOIN}"
    )


def wrong_credential(instance_id: str) -> PermissionDenied:
    return PermissionDenied(
        f"credential: not the one that this master gave to machine '{instance_id}'; the machine is to be replaced"
    )


def cannot_prove_itself(version: str, masters: str) -> PermissionDenied:
    return PermissionDenied(
        f"credential: this agent (version {version}) does not create its own; install the master's version {masters} on this "
        "machine and start the agent again"
    )
