"""The cloud port and its implementations. Each knows how to speak with one cloud; none decides anything.

A cloud's SDK is imported by that cloud's module alone.
"""
