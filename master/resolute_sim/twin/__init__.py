"""Simulates a pool on a trace of jobs: the production scheduler and planner under virtual time.

The input is a trace of jobs, series of capacity and price, the pool's production configuration, and the policies to compare. The
master's own functions make every decision of the policy `resolute` (`resolute_master.forecast`).

    det simulate --pool POOL.yaml --jobs JOBS.csv --policy resolute --policy determined --html report.html

- `jobs`       the trace of jobs, read and checked; `synthetic` generates one of the same kind and size from a seed
- `capacity`   series of capacity and price, and the market that follows them
- `pools`      POOL.yaml, read and checked by the master's models
- `baselines`     the decisions of the other policies
- `figures`    the reported figures, each defined in one place
- `twin`       one policy on one trace; `compare` runs several, each in its own process
- `frontier`   other settings of the pool, for the frontier of cost and waiting; `cost_split` splits the cost by purpose
- `advice`     settings of a pool that would save money; `advice_of_file` for a configuration file, `advisor` for a live master, in
               the process `advisor_process`
- `recorded`   replays a recorded journal
- `page`       the report as one page that needs no network
"""
