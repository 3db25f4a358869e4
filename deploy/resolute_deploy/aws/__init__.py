"""Amazon Web Services: the checks before Terraform, the cluster's bucket and secrets, and the resources that `down` removes."""
