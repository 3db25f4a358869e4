# A cluster in an existing network, with private services access for the database.

provider "google" {
  project = "vision-123456"
  region  = "us-west1"
}

variable "network" {
  type        = string
  description = "The network: projects/PROJECT/global/networks/NAME."
}

variable "subnetwork" {
  type        = string
  description = "Its subnetwork in the region, with a way to the internet."
}

module "resolute" {
  source = "../.."

  cluster_id   = "vision"
  project_id   = "vision-123456"
  network      = var.network
  subnetwork   = var.subnetwork
  inbound_cidr = ["10.0.0.0/8"]
  wheel        = "resolute_ml-0.1.0-py3-none-any.whl"
}

output "master_url" {
  value = module.resolute.master_url
}
