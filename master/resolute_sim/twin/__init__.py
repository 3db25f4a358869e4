"""A pool on a trace, before money is spent: the production scheduler and planner under virtual time.

Knows traces of jobs and of capacity, the pool's production configuration, and policies to compare. The master's own functions make
every decision of the policy `resolute` (`resolute_master.foresight`); the other policies are its peers.

    det simulate --pool POOL.yaml --jobs JOBS.csv --policy resolute --policy determined --html report.html

- `jobs`       the trace of jobs, read and checked; `synthetic` generates one of the same kind and size from a seed
- `capacity`   traces of capacity and price, and the market that plays them
- `pools`      POOL.yaml, read as the master reads it
- `rivals`     the decisions of other policies, exactly
- `figures`    the reported figures, each defined in one place
- `twin`       one policy on one trace; `compare` several, each in its own process
- `frontier`   other settings of the pool, for the frontier of cost and waiting
- `page`       the report as one page that needs no network
"""
