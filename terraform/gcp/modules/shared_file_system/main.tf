# Filestore, mounted by the agents.

resource "google_filestore_instance" "this" {
  name        = var.name
  project     = var.project
  location    = var.zone
  description = "Shared file system of ${var.name}"
  tier        = "BASIC_HDD"
  labels      = var.labels

  file_shares {
    name        = "shared_fs"
    capacity_gb = 1024
  }

  networks {
    network = var.network
    modes   = ["MODE_IPV4"]
  }
}
