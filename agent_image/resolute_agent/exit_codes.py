"""Exit codes of an agent, which its machine's process or service manager reads. Importing them imports nothing of the agent."""

from __future__ import annotations

EXIT_MACHINE_ENDS = 64
"""Exit code of an agent whose machine is to end itself: it must not be started again."""

EXIT_MISCONFIGURED = 78
"""Exit code of an agent with a configuration error: restarting it changes nothing."""
