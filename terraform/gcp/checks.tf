# Checks of several variables together. `det deploy gcp up` runs these checks before anything else.

resource "terraform_data" "checks" {
  lifecycle {
    precondition {
      condition     = var.allow_any_address || !contains(var.inbound_cidr, "0.0.0.0/0")
      error_message = "The inbound_cidr 0.0.0.0/0 opens the login page to the internet. If that is meant, set allow_any_address."
    }
    precondition {
      condition     = (var.network == null) == (var.subnetwork == null)
      error_message = "network and subnetwork go together: give both, or none."
    }
    precondition {
      condition     = var.subnetwork == null || try(split("/", var.subnetwork)[3] == var.region, false)
      error_message = "The subnetwork must be one of the region."
    }
    precondition {
      condition     = var.zone == null || try(startswith(var.zone, "${var.region}-"), false)
      error_message = "The zone must be one of the region."
    }
    precondition {
      condition     = alltrue([for zone in var.zones : startswith(zone, "${var.region}-")])
      error_message = "All zones must be of the region."
    }
    precondition {
      condition     = var.min_dynamic_agents <= var.max_dynamic_agents
      error_message = "min_dynamic_agents is greater than max_dynamic_agents."
    }
    precondition {
      condition     = (var.cpu_env_image == null) == (var.gpu_env_image == null)
      error_message = "cpu_env_image and gpu_env_image go together: give both, or none."
    }
    precondition {
      condition     = var.filestore_address == null || !var.filestore
      error_message = "filestore_address names a file system, and filestore makes one: give one of them."
    }
    precondition {
      condition     = !var.private || length(var.inbound_cidr) == 0
      error_message = "inbound_cidr has no effect with private: users connect through Identity-Aware Proxy."
    }
  }
}
