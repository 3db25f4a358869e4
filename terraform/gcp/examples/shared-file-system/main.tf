# Agents mount a Filestore file system, and tasks see it as shared_fs in their working directory.

provider "google" {
  project = "vision-123456"
  region  = "us-west1"
}

module "resolute" {
  source = "../.."

  cluster_id   = "vision"
  project_id   = "vision-123456"
  inbound_cidr = ["203.0.113.0/24"]
  filestore    = true
  wheel        = "resolute_ml-0.1.0-py3-none-any.whl"
}

output "master_url" {
  value = module.resolute.master_url
}
