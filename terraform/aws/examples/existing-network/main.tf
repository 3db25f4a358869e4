# A cluster in an existing network.

provider "aws" {
  region = "us-east-1"
}

variable "vpc_id" {
  type        = string
  description = "The network."
}

variable "subnet_ids" {
  type        = list(string)
  description = "Its subnets, in at least two zones, with a way to the internet."
}

module "resolute" {
  source = "../.."

  cluster_id      = "vision"
  keypair         = "ops"
  vpc_id          = var.vpc_id
  agent_subnet_id = var.subnet_ids
  inbound_cidr    = ["10.0.0.0/8"]
  wheel           = "resolute_ml-0.1.0-py3-none-any.whl"
}

output "master_url" {
  value = module.resolute.master_url
}
