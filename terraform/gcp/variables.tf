# Each variable is a flag of `det deploy gcp up` under the same name, with dashes: types, defaults, descriptions and checks are read
# from this file.

variable "cluster_id" {
  type        = string
  description = "Name of the cluster. It becomes a part of the names of its resources, and the value of their label resolute-deployment."

  validation {
    condition     = can(regex("^[a-z][-a-z0-9]{1,33}[a-z0-9]$", var.cluster_id)) && !can(regex("--", var.cluster_id))
    error_message = "The cluster_id must have 3 to 35 small letters, digits and single dashes, begin with a letter and not end with a dash."
  }
}

variable "project_id" {
  type        = string
  description = "Project of the cluster."

  validation {
    condition     = can(regex("^[a-z][-a-z0-9:.]{4,61}[a-z0-9]$", var.project_id))
    error_message = "The project_id must be the id of a project, such as vision-123456, not its number and not its name."
  }
}

variable "region" {
  type        = string
  default     = "us-west1"
  description = "Region of the cluster."

  validation {
    condition     = can(regex("^[a-z]+(-[a-z]+)+[0-9]+$", var.region))
    error_message = "The region must be one such as us-west1, without the letter of a zone."
  }
}

variable "zone" {
  type        = string
  default     = null
  description = "Zone of the master, of the database and of the shared file system. None takes the zone b of the region."

  validation {
    condition     = var.zone == null || can(regex("^[a-z]+(-[a-z]+)+[0-9]+-[a-z]$", var.zone))
    error_message = "The zone must be one such as us-west1-b."
  }
}

variable "zones" {
  type        = list(string)
  default     = []
  description = "Zones to buy machines in; none takes all of the region."

  validation {
    condition     = alltrue([for zone in var.zones : can(regex("^[a-z]+(-[a-z]+)+[0-9]+-[a-z]$", zone))])
    error_message = "Each of the zones must be one such as us-west1-b."
  }
}

# ------------------------------------------------------------------------------------------------------------------ network

variable "inbound_cidr" {
  type        = list(string)
  default     = []
  description = "Networks that may connect to the master, such as 203.0.113.7/32. None allows connections from inside the network only."

  validation {
    condition     = alltrue([for cidr in var.inbound_cidr : can(cidrnetmask(cidr))])
    error_message = "Each inbound_cidr must be an IPv4 network such as 203.0.113.0/24."
  }
}

variable "allow_any_address" {
  type        = bool
  default     = false
  description = "Accept 0.0.0.0/0 in inbound_cidr: the login page of the master is then open to the internet."
}

variable "private" {
  type        = bool
  default     = false
  description = "No machine has a public address: users connect through Identity-Aware Proxy, and machines reach the internet through Cloud NAT."
}

variable "network_cidr" {
  type        = string
  default     = "10.0.0.0/16"
  description = "Addresses of the network that is created, at least a /20. Has no effect if network is given."

  validation {
    condition     = can(cidrnetmask(var.network_cidr)) && try(tonumber(split("/", var.network_cidr)[1]) <= 20, false)
    error_message = "The network_cidr must be an IPv4 network of at least a /20, such as 10.0.0.0/16."
  }
}

variable "network" {
  type        = string
  default     = null
  description = "An existing network to use, with subnetwork: projects/PROJECT/global/networks/NAME. For a database it needs private services access."

  validation {
    condition     = var.network == null || can(regex("^projects/[^/]+/global/networks/[-a-z0-9]+$", var.network))
    error_message = "The network must look like projects/vision-123456/global/networks/default."
  }
}

variable "subnetwork" {
  type        = string
  default     = null
  description = "Subnetwork of network in the cluster's region: projects/PROJECT/regions/REGION/subnetworks/NAME."

  validation {
    condition     = var.subnetwork == null || can(regex("^projects/[^/]+/regions/[^/]+/subnetworks/[-a-z0-9]+$", var.subnetwork))
    error_message = "The subnetwork must look like projects/vision-123456/regions/us-west1/subnetworks/default."
  }
}

# ------------------------------------------------------------------------------------------------------------------- master

variable "master_instance_type" {
  type        = string
  default     = "e2-standard-2"
  description = "Machine type of the master."
}

variable "master_image" {
  type        = string
  default     = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
  description = "Machine image of the master, with Python 3.11 or newer and systemd: an image or a family."

  validation {
    condition     = can(regex("^projects/[^/]+/global/images/(family/)?[-a-z0-9]+$", var.master_image))
    error_message = "The master_image must look like projects/PROJECT/global/images/NAME or projects/PROJECT/global/images/family/NAME."
  }
}

variable "master_disk_size" {
  type        = number
  default     = 50
  description = "Disk of the master in GB."

  validation {
    condition     = var.master_disk_size >= 20
    error_message = "The master_disk_size must be at least 20."
  }
}

variable "port" {
  type        = number
  default     = 8443
  description = "Port of the master. It speaks TLS."

  validation {
    condition     = var.port >= 1 && var.port <= 65535
    error_message = "The port must be between 1 and 65535."
  }
}

variable "wheel" {
  type        = string
  description = "File of the wheel that the master's machine installs. `det deploy gcp up` takes the one that it runs from."
}

variable "environment" {
  type        = map(string)
  default     = {}
  description = "Variables of the environment of the master and of all tasks, with which an emulator of Google Cloud is named."

  validation {
    condition     = alltrue([for name, value in var.environment : can(regex("^[A-Z][A-Z0-9_]*$", name)) && !can(regex("[\n']", value))])
    error_message = "The names in environment must be of capital letters, digits and underscores, and the values without quotes and line ends."
  }
}

variable "pip_options" {
  type        = string
  default     = ""
  description = "Options of pip on the master's machine, for a package index of your own, such as --index-url=https://pypi.example.org/simple."

  validation {
    condition     = !can(regex("[\n'\"$`\\\\]", var.pip_options))
    error_message = "The pip_options must not have quotes, dollar signs, backslashes or line ends."
  }
}

variable "cloud_logging" {
  type        = bool
  default     = false
  description = "Send the master's log to Cloud Logging."
}

# ----------------------------------------------------------------------------------------------------------------- database

variable "db_instance_type" {
  type        = string
  default     = "db-custom-1-3840"
  description = "Tier of the database's machine."

  validation {
    condition     = can(regex("^db-[-a-z0-9]+$", var.db_instance_type))
    error_message = "The db_instance_type must be a tier of Cloud SQL such as db-custom-2-7680."
  }
}

variable "db_size" {
  type        = number
  default     = 20
  description = "Storage of the database in GB; it grows by itself."

  validation {
    condition     = var.db_size >= 10
    error_message = "The db_size must be at least 10."
  }
}

variable "existing_database" {
  type        = map(string)
  default     = null
  description = "An existing PostgreSQL to use: host, port, name, user, ssl_mode and password_secret, a secret of the project with the password."

  validation {
    condition     = var.existing_database == null || try(sort(keys(var.existing_database)) == tolist(["host", "name", "password_secret", "port", "ssl_mode", "user"]), false)
    error_message = "The existing_database must have host, port, name, user, ssl_mode and password_secret, and nothing else."
  }
}

variable "db_backup_days" {
  type        = number
  default     = 7
  description = "Daily backups of the database that are kept; 0 makes none."

  validation {
    condition     = var.db_backup_days >= 0 && var.db_backup_days <= 365
    error_message = "The db_backup_days must be between 0 and 365."
  }
}

variable "deletion_protection" {
  type        = bool
  default     = false
  description = "Refuse to delete the database until this is false again."
}

variable "regional_database" {
  type        = bool
  default     = false
  description = "Keep a standby of the database in another zone."
}

# ------------------------------------------------------------------------------------------------------------------ storage

variable "bucket_versioning" {
  type        = bool
  default     = false
  description = "Keep overwritten and deleted objects of the bucket for 30 days."
}

variable "checkpoint_expiry_days" {
  type        = number
  default     = 0
  description = "Delete checkpoints after this number of days, even those in use; 0 leaves that to the cluster's own rules."

  validation {
    condition     = var.checkpoint_expiry_days >= 0
    error_message = "The checkpoint_expiry_days must not be negative."
  }
}

variable "filestore" {
  type        = bool
  default     = false
  description = "Make a Filestore file system, which tasks see as shared_fs in their working directory. It has a terabyte and costs accordingly."
}

variable "filestore_address" {
  type        = string
  default     = null
  description = "An existing file system instead: address:/share."

  validation {
    condition     = var.filestore_address == null || can(regex("^[-a-zA-Z0-9.]+:/[-_/a-zA-Z0-9.]*$", var.filestore_address))
    error_message = "The filestore_address must look like 10.0.1.2:/share."
  }
}

# -------------------------------------------------------------------------------------------------------------------- pools

variable "compute_agent_instance_type" {
  type        = list(string)
  default     = ["g2-standard-8"]
  description = "Machine types of the pool compute-pool. Of several, the one with the lowest expected cost is bought."

  validation {
    condition     = length(var.compute_agent_instance_type) > 0
    error_message = "Give at least one compute_agent_instance_type."
  }
}

variable "aux_agent_instance_type" {
  type        = list(string)
  default     = ["e2-standard-4"]
  description = "Machine types of the pool aux-pool, for work without slots."

  validation {
    condition     = length(var.aux_agent_instance_type) > 0
    error_message = "Give at least one aux_agent_instance_type."
  }
}

variable "gpu_type" {
  type        = string
  default     = "nvidia-tesla-t4"
  description = "Type of GPU that is attached to machines of compute-pool whose types begin with n1; other types have built-in GPUs."
}

variable "gpu_num" {
  type        = number
  default     = 4
  description = "Number of GPUs that are attached to a machine; 0 attaches none."

  validation {
    condition     = contains([0, 1, 2, 4, 8], var.gpu_num)
    error_message = "The gpu_num must be 0, 1, 2, 4 or 8."
  }
}

variable "compute_image" {
  type        = string
  default     = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580"
  description = "Machine image of compute-pool, with the driver of its GPUs and Python 3.11 or newer: an image or a family."

  validation {
    condition     = can(regex("^projects/[^/]+/global/images/(family/)?[-a-z0-9]+$", var.compute_image))
    error_message = "The compute_image must look like projects/PROJECT/global/images/NAME or projects/PROJECT/global/images/family/NAME."
  }
}

variable "aux_image" {
  type        = string
  default     = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
  description = "Machine image of aux-pool, with Python 3.11 or newer: an image or a family."

  validation {
    condition     = can(regex("^projects/[^/]+/global/images/(family/)?[-a-z0-9]+$", var.aux_image))
    error_message = "The aux_image must look like projects/PROJECT/global/images/NAME or projects/PROJECT/global/images/family/NAME."
  }
}

variable "disk_size" {
  type        = number
  default     = 200
  description = "Disk of each agent in GB."

  validation {
    condition     = var.disk_size >= 100
    error_message = "The disk_size must be at least 100."
  }
}

variable "disk_type" {
  type        = string
  default     = "pd-balanced"
  description = "Type of these disks. Machine types with built-in GPUs do not support pd-standard."

  validation {
    condition     = contains(["pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"], var.disk_type)
    error_message = "The disk_type must be pd-standard, pd-balanced, pd-ssd or hyperdisk-balanced."
  }
}

variable "min_dynamic_agents" {
  type        = number
  default     = 0
  description = "Machines that each pool keeps when it has no work."

  validation {
    condition     = var.min_dynamic_agents >= 0
    error_message = "The min_dynamic_agents must not be negative."
  }
}

variable "max_dynamic_agents" {
  type        = number
  default     = 5
  description = "Maximum number of machines of each pool."

  validation {
    condition     = var.max_dynamic_agents >= 1
    error_message = "The max_dynamic_agents must be at least 1."
  }
}

variable "max_aux_containers_per_agent" {
  type        = number
  default     = 16
  description = "Tasks without slots that a machine of aux-pool runs at a time."

  validation {
    condition     = var.max_aux_containers_per_agent >= 1
    error_message = "The max_aux_containers_per_agent must be at least 1."
  }
}

variable "max_idle_agent_period" {
  type        = string
  default     = "10m"
  description = "How long a machine may be idle before it is ended."

  validation {
    condition     = can(regex("^([0-9]+(h|m|s))+$", var.max_idle_agent_period))
    error_message = "The max_idle_agent_period must be a duration such as 10m or 1h30m."
  }
}

variable "max_agent_starting_period" {
  type        = string
  default     = "20m"
  description = "How long a machine may take to join before it is replaced."

  validation {
    condition     = can(regex("^([0-9]+(h|m|s))+$", var.max_agent_starting_period))
    error_message = "The max_agent_starting_period must be a duration such as 20m."
  }
}

variable "operation_timeout_period" {
  type        = string
  default     = "5m"
  description = "Timeout of the operation that launches a machine."

  validation {
    condition     = can(regex("^([0-9]+(h|m|s))+$", var.operation_timeout_period))
    error_message = "The operation_timeout_period must be a duration such as 5m."
  }
}

variable "preemptible" {
  type        = bool
  default     = false
  description = "Buy spot machines for compute-pool, and machines on demand while no spot machine is available."
}

variable "scheduler_type" {
  type        = string
  default     = "fair_share"
  description = "Scheduler of the pools: fair_share or priority."

  validation {
    condition     = contains(["fair_share", "priority"], var.scheduler_type)
    error_message = "The scheduler_type must be fair_share or priority."
  }
}

variable "preemption_enabled" {
  type        = bool
  default     = false
  description = "With the priority scheduler: more important work may stop less important work."
}

variable "container_runtime" {
  type        = string
  default     = "docker"
  description = "docker: tasks run in containers. process: tasks run as processes of their machine, whose image then has what they import."

  validation {
    condition     = contains(["docker", "process"], var.container_runtime)
    error_message = "The container_runtime must be docker or process."
  }
}

variable "cpu_env_image" {
  type        = string
  default     = null
  description = "Image of tasks on machines without GPUs; with gpu_env_image."
}

variable "gpu_env_image" {
  type        = string
  default     = null
  description = "Image of tasks on machines with GPUs; with cpu_env_image."
}
