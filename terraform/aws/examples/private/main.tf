# No machine has a public address: people come in through Session Manager.

provider "aws" {
  region = "eu-central-1"
}

module "resolute" {
  source = "../.."

  cluster_id          = "vision"
  deployment_type     = "secure"
  keypair             = "ops"
  wheel               = "resolute_ml-0.1.0-py3-none-any.whl"
  deletion_protection = true
  multi_az            = true
  log_retention_days  = 30
}

output "session" {
  description = "Command that makes the master reachable as https://localhost:8443."
  value       = "aws ssm start-session --target ${module.resolute.master_instance_id} --document-name AWS-StartPortForwardingSession --parameters portNumber=8443,localPortNumber=8443"
}
