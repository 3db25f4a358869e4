"""Decodes, checks and stores what callers submit, before the command that uses it.

Contains configurations, context directories and reports. Must not depend on any resource.
"""
