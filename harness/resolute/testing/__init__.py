"""Programs for trying out a cluster: the scripted trial.

Uses the Core API as a user does. Must not depend on the inside of any other package; the standard library only.
"""
