"""What users import, and the shared kernel of every Resolute process.

Knows how user code talks to a master (or to nobody): `resolute.core`, `resolute.pytorch`, `resolute.client`.
The kernel (`clock`, `ids`, `errors`, `wire`) names the contract that master, agent, provisioner and CLI share.
Must not know schedulers, clouds or SQL, and needs the standard library only wherever a training container
imports it.
"""

__version__ = "0.1.0"
