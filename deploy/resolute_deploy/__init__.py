"""Creates a cluster in a cloud account with Terraform, and destroys it.

The package contains the Terraform modules' interface, the state of a cluster on this machine or in a bucket, and the rendering of a
master's configuration from the outputs of the modules (facts). `machine` runs on the master's machine; everything else runs where
`det deploy` is called.

It must not import the provisioner, which buys the machines for work. It calls a master only to check that it is ready.
"""
