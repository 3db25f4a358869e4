# Each variable is a flag of `det deploy aws up` under the same name, with dashes: types, defaults, descriptions and checks are read
# from this file.

variable "cluster_id" {
  type        = string
  description = "Name of the cluster. It becomes a part of the names of its resources, and the value of their tag resolute-deployment."

  validation {
    condition     = can(regex("^[a-z][-a-z0-9]{1,28}[a-z0-9]$", var.cluster_id))
    error_message = "The cluster_id must have 3 to 30 small letters, digits and dashes, begin with a letter and not end with a dash."
  }
}

variable "keypair" {
  type        = string
  description = "Name of the EC2 key pair for logins to the machines."

  validation {
    condition     = length(var.keypair) > 0
    error_message = "The keypair must be the name of a key pair of the region."
  }
}

variable "deployment_type" {
  type        = string
  default     = "simple-rds"
  description = "simple-rds: public addresses. secure: no machine has a public address, people come in through Session Manager. efs: simple-rds with a shared file system."

  validation {
    condition     = contains(["simple-rds", "secure", "efs"], var.deployment_type)
    error_message = "The deployment_type must be simple-rds, secure or efs. FSx, GovCloud and GenAI deployments are not supported."
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

variable "network_cidr" {
  type        = string
  default     = "10.0.0.0/16"
  description = "Addresses of the network that is created, at least a /20. Has no effect if vpc_id is given."

  validation {
    condition     = can(cidrnetmask(var.network_cidr)) && try(tonumber(split("/", var.network_cidr)[1]) <= 20, false)
    error_message = "The network_cidr must be an IPv4 network of at least a /20, such as 10.0.0.0/16."
  }
}

variable "zones" {
  type        = list(string)
  default     = []
  description = "Availability zones to buy machines in; none takes up to four of the region. The database needs two."

  validation {
    condition     = length(var.zones) != 1
    error_message = "Give at least two zones, or none: the database needs subnets in two."
  }
}

variable "vpc_id" {
  type        = string
  default     = null
  description = "An existing network to use, with agent_subnet_id."

  validation {
    condition     = var.vpc_id == null || can(regex("^vpc-[0-9a-f]+$", var.vpc_id))
    error_message = "The vpc_id must look like vpc-0abc."
  }
}

variable "agent_subnet_id" {
  type        = list(string)
  default     = []
  description = "Subnets of vpc_id for agents, master and database, in at least two zones. The master takes the first one."

  validation {
    condition     = alltrue([for subnet in var.agent_subnet_id : can(regex("^subnet-[0-9a-f]+$", subnet))])
    error_message = "Each agent_subnet_id must look like subnet-0abc."
  }
}

# ------------------------------------------------------------------------------------------------------------------- master

variable "master_instance_type" {
  type        = string
  default     = "m6i.large"
  description = "Machine type of the master."
}

variable "master_image_id" {
  type        = string
  default     = null
  description = "Machine image of the master, with Python 3.11 or newer and systemd. None takes the newest Ubuntu 24.04 of its vendor."

  validation {
    condition     = var.master_image_id == null || can(regex("^ami-[0-9a-f]+$", var.master_image_id))
    error_message = "The master_image_id must look like ami-0abc."
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
  description = "File of the wheel that the master's machine installs. `det deploy aws up` takes the one that it runs from."
}

variable "endpoint_url" {
  type        = string
  default     = null
  description = "Address of an emulator of AWS, which the master's machine uses as well."

  validation {
    condition     = var.endpoint_url == null || can(regex("^https?://[-0-9A-Za-z.:]+$", var.endpoint_url))
    error_message = "The endpoint_url must look like http://127.0.0.1:5000."
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

# ----------------------------------------------------------------------------------------------------------------- database

variable "db_instance_type" {
  type        = string
  default     = "db.t4g.medium"
  description = "Class of the database's machine."
}

variable "db_size" {
  type        = number
  default     = 20
  description = "Storage of the database in GB; it grows by itself up to five times that."

  validation {
    condition     = var.db_size >= 20
    error_message = "The db_size must be at least 20."
  }
}

variable "db_snapshot" {
  type        = string
  default     = null
  description = "Snapshot from which the database is created."
}

variable "existing_database" {
  type        = map(string)
  default     = null
  description = "An existing PostgreSQL to use: host, port, name, user, ssl_mode and password_secret_arn, a secret whose JSON has the key password."

  validation {
    condition     = var.existing_database == null || try(sort(keys(var.existing_database)) == tolist(["host", "name", "password_secret_arn", "port", "ssl_mode", "user"]), false)
    error_message = "The existing_database must have host, port, name, user, ssl_mode and password_secret_arn, and nothing else."
  }
}

variable "db_backup_days" {
  type        = number
  default     = 7
  description = "Days that backups of the database are kept; 0 makes none."

  validation {
    condition     = var.db_backup_days >= 0 && var.db_backup_days <= 35
    error_message = "The db_backup_days must be between 0 and 35."
  }
}

variable "deletion_protection" {
  type        = bool
  default     = false
  description = "Refuse to delete the database until this is false again, and keep a last snapshot when it is deleted."
}

variable "multi_az" {
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

variable "bucket_lifecycle" {
  type        = bool
  default     = true
  description = "Remove the parts of uploads that were never finished after three days, and old versions after 30."
}

variable "bucket_tls_only" {
  type        = bool
  default     = true
  description = "Refuse connections to the bucket that are not encrypted."
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

variable "log_retention_days" {
  type        = number
  default     = 0
  description = "Send the master's log to CloudWatch and keep it for this number of days; 0 leaves it on its machine."

  validation {
    condition     = contains([0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653], var.log_retention_days)
    error_message = "The log_retention_days must be a period that CloudWatch has: 0 (off), 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365 or more."
  }
}

# -------------------------------------------------------------------------------------------------------------------- pools

variable "compute_agent_instance_type" {
  type        = list(string)
  default     = ["g5.xlarge", "g6.xlarge"]
  description = "Machine types of the pool compute-pool. Of several, the one with the lowest expected cost is bought."

  validation {
    condition     = length(var.compute_agent_instance_type) > 0
    error_message = "Give at least one compute_agent_instance_type."
  }
}

variable "aux_agent_instance_type" {
  type        = list(string)
  default     = ["m5.xlarge"]
  description = "Machine types of the pool aux-pool, for work without slots."

  validation {
    condition     = length(var.aux_agent_instance_type) > 0
    error_message = "Give at least one aux_agent_instance_type."
  }
}

variable "compute_image_id" {
  type        = string
  default     = "resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
  description = "Machine image of compute-pool, with drivers, Docker and Python 3.11 or newer: an AMI, or resolve:ssm: and a parameter."

  validation {
    condition     = can(regex("^(ami-[0-9a-f]+|resolve:ssm:/.+)$", var.compute_image_id))
    error_message = "The compute_image_id must look like ami-0abc, or resolve:ssm:/a/parameter."
  }
}

variable "aux_image_id" {
  type        = string
  default     = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
  description = "Machine image of aux-pool, with Python 3.11 or newer: an AMI, or resolve:ssm: and a parameter."

  validation {
    condition     = can(regex("^(ami-[0-9a-f]+|resolve:ssm:/.+)$", var.aux_image_id))
    error_message = "The aux_image_id must look like ami-0abc, or resolve:ssm:/a/parameter."
  }
}

variable "agent_disk_size" {
  type        = number
  default     = 200
  description = "Disk of each agent in GB."

  validation {
    condition     = var.agent_disk_size >= 100
    error_message = "The agent_disk_size must be at least 100."
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

variable "spot" {
  type        = bool
  default     = false
  description = "Buy the machines of compute-pool on the spot market, and on demand while no spot machine is available."
}

variable "spot_max_price" {
  type        = number
  default     = null
  description = "Highest price of an hour of a spot machine in dollars. None allows up to the price on demand."

  validation {
    condition     = var.spot_max_price == null || try(var.spot_max_price > 0, false)
    error_message = "The spot_max_price must be greater than 0."
  }
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

variable "efs_id" {
  type        = string
  default     = null
  description = "An existing EFS file system for the deployment type efs. Without it, one is created."

  validation {
    condition     = var.efs_id == null || can(regex("^fs-[0-9a-f]+$", var.efs_id))
    error_message = "The efs_id must look like fs-0abc."
  }
}
