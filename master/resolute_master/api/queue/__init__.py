"""The queue of jobs as the API shows it: positions, the right to change them, and start estimates of waiting jobs.

Knows the scheduler's snapshot and the forecasts. Must not know any resource.
"""
