"""A pool on a trace, before money is spent: the production scheduler and planner under virtual time.

Knows traces of jobs and of capacity, the pool's production configuration, and policies to compare. Every decision of the policy
`resolute` is made by the master's own functions (`resolute_master.foresight`); the others are the peers that it is judged by.

    det simulate --pool POOL.yaml --jobs JOBS.csv --policy resolute --policy determined --html report.html

- `jobs`       the trace of jobs, read and checked; `synthetic` makes one of the same kind and size from a seed
- `capacity`   traces of capacity and price, and the market that plays them
- `pools`      POOL.yaml, read as the master reads it
- `rivals`     other policies: what they decide, exactly
- `figures`    what is reported, each defined in one place
- `twin`       one policy on one trace; `compare` several, each in a process of its own
- `page`       the report as one page that needs no network
"""
