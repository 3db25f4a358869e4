# No machine has a public address: users connect through Identity-Aware Proxy.

provider "google" {
  project = "vision-123456"
  region  = "europe-west4"
}

module "resolute" {
  source = "../.."

  cluster_id          = "vision"
  project_id          = "vision-123456"
  region              = "europe-west4"
  private             = true
  wheel               = "resolute_ml-0.1.0-py3-none-any.whl"
  deletion_protection = true
  regional_database   = true
  cloud_logging       = true
}

output "tunnel" {
  description = "Command that makes the master reachable as https://localhost:8443."
  value       = "gcloud compute start-iap-tunnel resolute-vision-master 8443 --local-host-port=localhost:8443 --zone europe-west4-b --project vision-123456"
}
