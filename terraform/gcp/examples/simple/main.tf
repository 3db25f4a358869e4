# A cluster that accepts connections from one office.

provider "google" {
  project = "vision-123456"
  region  = "us-central1"
}

module "resolute" {
  source = "../.."

  cluster_id   = "vision"
  project_id   = "vision-123456"
  region       = "us-central1"
  inbound_cidr = ["203.0.113.0/24"]
  wheel        = "resolute_ml-0.1.0-py3-none-any.whl"
  preemptible  = true
}

output "master_url" {
  value = module.resolute.master_url
}
