"""Domain values as messages of the wire: pure functions, one module a noun.

Defines the form of each message. Must not depend on the engine or the form of storage: rows from the store are arguments.
"""
