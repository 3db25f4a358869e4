"""The cloud port and its implementations. Each knows how to speak with one cloud; none decides anything.

A cloud's SDK is imported by that cloud's modules alone: `aws_calls` and `gcp_calls`. What is asked for is rendered by pure
modules (`aws_request`, `gcp_request`).
"""
