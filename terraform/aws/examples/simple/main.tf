# A cluster that accepts connections from one office.

provider "aws" {
  region = "us-east-1"
}

module "resolute" {
  source = "../.."

  cluster_id   = "vision"
  keypair      = "ops"
  inbound_cidr = ["203.0.113.0/24"]
  wheel        = "resolute_ml-0.1.0-py3-none-any.whl"
  spot         = true
}

output "master_url" {
  value = module.resolute.master_url
}
