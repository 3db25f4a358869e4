output "network" {
  description = "The network."
  value       = local.own ? google_compute_network.this[0].id : var.network
}

output "services_network" {
  description = "The network, when a database can have an address in it."
  value       = local.own && var.services ? google_service_networking_connection.services[0].network : (local.own ? google_compute_network.this[0].id : var.network)
}

output "subnetwork" {
  description = "The subnetwork."
  value       = local.own ? google_compute_subnetwork.this[0].id : var.subnetwork
}
