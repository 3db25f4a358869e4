"""Speed, measured: medians and ratios against a bound or a peer of the same run.

    python -m benchmarks [name ...]

Every figure is printed with the command that gives it. Nothing here is asserted: tests promise behaviour, benchmarks tell figures.
"""
