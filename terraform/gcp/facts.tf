# The facts for the master's configuration. The master's machine reads this file from the bucket and renders its
# configuration with the code of its wheel (resolute_deploy.master_config), which checks it with the models of the master.

locals {
  facts = {
    format     = 1
    cloud      = "gcp"
    cluster_id = var.cluster_id
    port       = var.port

    database    = merge(local.database, { project = var.project_id })
    bucket      = module.storage.name
    environment = var.environment

    scheduler = {
      type       = var.scheduler_type
      preemption = var.preemption_enabled
    }

    container_runtime = var.container_runtime
    task_images       = var.cpu_env_image == null ? null : { cpu = var.cpu_env_image, cuda = var.gpu_env_image }

    shared_file_system = local.shared_file_system == null ? null : {
      type    = "nfs"
      source  = local.shared_file_system
      options = "rw,hard,timeo=600,retrans=3,rsize=524288,wsize=524288,resvport"
    }

    agents = {
      project           = var.project_id
      zones             = local.zones
      network           = module.network.network
      subnetwork        = module.network.subnetwork
      external_ip       = !var.private
      account           = module.identity.agent
      name_prefix       = local.agent_prefix
      label             = { key = "resolute-deployment", value = var.cluster_id }
      disk_size         = var.disk_size
      disk_type         = var.disk_type
      operation_timeout = var.operation_timeout_period
      min               = var.min_dynamic_agents
      max               = var.max_dynamic_agents
      max_aux           = var.max_aux_containers_per_agent
      idle              = var.max_idle_agent_period
      starting          = var.max_agent_starting_period
    }

    pools = {
      compute = {
        instance_types = var.compute_agent_instance_type
        image          = var.compute_image
        gpu_type       = var.gpu_type
        gpu_num        = var.gpu_num
        spot           = var.preemptible
      }
      aux = {
        instance_types = var.aux_agent_instance_type
        image          = var.aux_image
        gpu_type       = ""
        gpu_num        = 0
        spot           = false
      }
    }
  }
}
