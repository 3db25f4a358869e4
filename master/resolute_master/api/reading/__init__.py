"""The sources of answers: the committed state, the store and the master's own log.

Reads the engine's state and the store. Must not depend on any resource.
"""
