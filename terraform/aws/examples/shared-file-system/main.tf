# Agents mount an EFS file system, and tasks see it as shared_fs in their working directory.

provider "aws" {
  region = "us-west-2"
}

module "resolute" {
  source = "../.."

  cluster_id      = "vision"
  deployment_type = "efs"
  keypair         = "ops"
  inbound_cidr    = ["203.0.113.0/24"]
  wheel           = "resolute_ml-0.1.0-py3-none-any.whl"
}

output "master_url" {
  value = module.resolute.master_url
}
