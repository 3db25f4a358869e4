"""How containers are run: one port (`base`), its implementations `process` and `scripted`.

Knows processes, namespaces and output files. Must not know the link, the master or what a task computes.
"""

from __future__ import annotations
