"""Google Cloud: what is looked at before Terraform runs, what only the cloud knows of a cluster, and what `down` ends."""
