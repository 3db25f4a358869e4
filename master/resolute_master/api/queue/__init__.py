"""The queue of jobs as the API shows it: positions, who may change them, and when waiting jobs will start.

Knows the scheduler's snapshot and the forecasts. Must not know any resource.
"""
