"""Brings a cluster up on a cloud account by Terraform, and takes it away again.

Knows the Terraform modules of `terraform/`, the state of a cluster on this machine or in a bucket, what the modules tell of a
cluster (facts), and how a master's configuration is made of these. `machine` runs on the machine of the master; everything
else runs where `det deploy` is called.

Must not know how machines for work are bought: that is the provisioner's. Speaks to a master only to see that it serves.
"""
