"""Elastic pools as the configuration writes them: their policies, offers, clouds and prices.

Knows the configuration, the offers that follow from it, and which cloud and which prices stand behind each pool; the SDK of a
cloud is imported only when a pool is of that cloud. Must not know how anything is decided.

`policies` makes the values that decisions are made with (`offers` what a pool may buy, `instance_types` and `remembered` what a
start has learnt from outside); `clouds` opens what is behind a pool (`aws`, `gcp`, `local`; `machine_host` what their machines
are told, `bootable` whether they could boot, `price_sources` who tells prices); `provisioning` runs one reconciler a pool;
`pool_file` and `offer_rows` show a pool without a master.
"""
