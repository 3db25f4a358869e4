"""Google Cloud: the checks before Terraform runs, the cluster's bucket and secrets, and the resources that `down` removes."""
