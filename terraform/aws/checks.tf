# Checks of several variables together. `det deploy aws up` runs these checks before anything else.

resource "terraform_data" "checks" {
  lifecycle {
    precondition {
      condition     = var.allow_any_address || !contains(var.inbound_cidr, "0.0.0.0/0")
      error_message = "The inbound_cidr 0.0.0.0/0 opens the login page to the internet. If that is meant, set allow_any_address."
    }
    precondition {
      condition     = (var.vpc_id == null) == (length(var.agent_subnet_id) == 0)
      error_message = "vpc_id and agent_subnet_id go together: give both, or none."
    }
    precondition {
      condition     = length(var.agent_subnet_id) != 1
      error_message = "Give at least two agent_subnet_id, in two zones: the database needs them."
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
      condition     = var.spot || var.spot_max_price == null
      error_message = "spot_max_price needs spot."
    }
    precondition {
      condition     = var.efs_id == null || var.deployment_type == "efs"
      error_message = "efs_id needs the deployment_type efs."
    }
  }
}
