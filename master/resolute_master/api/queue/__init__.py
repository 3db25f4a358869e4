"""The queue of jobs as the API shows it: positions, the right to change them, and start estimates of waiting jobs.

Uses the scheduler's snapshot and the forecasts. Must not depend on any resource.
"""
