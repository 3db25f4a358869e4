"""What callers submit: decoded, checked and stored, each before the command that acts on it.

Knows configurations, context directories and reports. Must not know any resource.
"""
