"""Elastic pools as the configuration writes them: their policies, offers, clouds and prices.

Knows the configuration, and asks the driver of each pool's provider (`resolute_provisioner.clouds.driver`) for all that depends on
the cloud. Must not know which providers there are, nor how anything is decided.

`policies` makes the values that decisions are made with (`offers` what a pool may buy, `instance_types` and `remembered` what a
start has learnt from outside); `clouds` completes and checks the pools at a start, and opens what is behind each; `price_sources`
what tells prices; `provisioning` runs one reconciler a pool; `pool_file`, `file_checks` and `offer_rows` show a pool without a
master.
"""
