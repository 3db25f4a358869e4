# The facts for the master's configuration. The master's machine reads this file from the bucket and renders its
# configuration with the code of its wheel (resolute_deploy.master_config), which checks it with the models of the master.

locals {
  facts = {
    format     = 1
    cloud      = "aws"
    cluster_id = var.cluster_id
    port       = var.port

    database = {
      host            = local.database.host
      port            = tonumber(local.database.port)
      name            = local.database.name
      user            = local.database.user
      ssl_mode        = local.database.ssl_mode
      password_secret = local.database.password_secret_arn
    }

    bucket       = module.storage.name
    endpoint_url = var.endpoint_url

    scheduler = {
      type       = var.scheduler_type
      preemption = var.preemption_enabled
    }

    container_runtime = var.container_runtime
    task_images       = var.cpu_env_image == null ? null : { cpu = var.cpu_env_image, cuda = var.gpu_env_image }

    shared_file_system = var.deployment_type != "efs" ? null : {
      type    = "nfs4"
      source  = "${module.shared_file_system[0].dns_name}:/"
      options = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
    }

    agents = {
      region               = local.region
      subnets              = module.network.agent_subnets
      security_group_id    = module.firewall.agent
      public_ip            = !local.private
      instance_profile_arn = module.identity.agent_profile_arn
      keypair              = var.keypair
      tag                  = local.agent_tag
      disk_size            = var.agent_disk_size
      min                  = var.min_dynamic_agents
      max                  = var.max_dynamic_agents
      max_aux              = var.max_aux_containers_per_agent
      idle                 = var.max_idle_agent_period
      starting             = var.max_agent_starting_period
    }

    pools = {
      compute = {
        instance_types = var.compute_agent_instance_type
        image_id       = var.compute_image_id
        spot           = var.spot
        spot_max_price = var.spot_max_price
      }
      aux = {
        instance_types = var.aux_agent_instance_type
        image_id       = var.aux_image_id
        spot           = false
        spot_max_price = null
      }
    }
  }
}
