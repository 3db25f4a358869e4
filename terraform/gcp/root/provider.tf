# Beside the files of the module, in the directory of a cluster.

provider "google" {
  project     = var.project_id
  region      = var.region
  credentials = var.keypath == null ? null : file(var.keypath)

  default_labels                  = merge(var.add_label, { "resolute-deployment" = var.cluster_id })
  add_terraform_attribution_label = false
}
