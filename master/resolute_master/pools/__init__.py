"""Elastic pools of the configuration: their policies, offers, clouds and prices.

Reads the configuration, and uses the driver of each pool's provider (`resolute_provisioner.clouds.driver`) for everything that
depends on the cloud. Must not depend on particular providers, nor on the way in which decisions are made.

`policies` builds the inputs of decisions (`offers` what a pool may buy, `instance_types` and `remembered` what a
start has learnt from outside); `clouds` completes and checks the pools at a start, and opens the cloud of each; `price_sources`
provides prices; `provisioning` runs one reconciler per pool; `pool_file`, `file_checks` and `offer_rows` show a pool without a
master.
"""
