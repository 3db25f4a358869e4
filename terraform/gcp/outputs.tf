output "master_url" {
  description = "Address of the master."
  value       = "https://${module.master.address}:${var.port}"
}

output "master_instance_id" {
  description = "Machine of the master: its zone and its name."
  value       = module.master.instance_id
}

output "region" {
  description = "Region of the cluster."
  value       = var.region
}

output "bucket" {
  description = "Bucket of checkpoints (below checkpoints/) and of what the master's machine reads and writes (below cluster/)."
  value       = module.storage.name
}

output "password_secret" {
  description = "Secret with the password of the first users, which the master's machine creates at its first start."
  value       = module.master.password_secret
}

output "database_secret" {
  description = "Secret with the password of the database."
  value       = local.database.password_secret
}

output "agent_prefix" {
  description = "Start of the names of the machines that the master buys."
  value       = local.agent_prefix
}

output "facts" {
  description = "What the master's configuration is rendered from."
  value       = local.facts
}
