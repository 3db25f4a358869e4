# A network of our own, or an existing one. Master and agents are in one subnetwork; without public addresses they reach the internet
# through Cloud NAT.

locals {
  own = var.network == null
}

resource "google_compute_network" "this" {
  count = local.own ? 1 : 0

  name                    = var.name
  project                 = var.project
  description             = "Network of ${var.name}"
  auto_create_subnetworks = false
}

resource "google_compute_subnetwork" "this" {
  count = local.own ? 1 : 0

  name        = var.name
  project     = var.project
  region      = var.region
  description = "Machines of ${var.name}"
  network     = google_compute_network.this[0].id

  # Half of the addresses; the other half is for the services beside the machines.
  ip_cidr_range = cidrsubnet(var.cidr, 1, 0)

  # Google's own services, such as the bucket, are reached without an address of the internet.
  private_ip_google_access = true
}

resource "google_compute_router" "this" {
  count = local.own && var.private ? 1 : 0

  name        = var.name
  project     = var.project
  region      = var.region
  description = "Way out of ${var.name}"
  network     = google_compute_network.this[0].id
}

resource "google_compute_router_nat" "this" {
  count = local.own && var.private ? 1 : 0

  name                               = var.name
  project                            = var.project
  region                             = var.region
  router                             = google_compute_router.this[0].name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
}

resource "google_compute_global_address" "services" {
  count = local.own && var.services ? 1 : 0

  name          = "${var.name}-services"
  project       = var.project
  description   = "Private services of ${var.name}"
  labels        = var.labels
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  address       = cidrhost(cidrsubnet(var.cidr, 1, 1), 0)
  prefix_length = tonumber(split("/", var.cidr)[1]) + 1
  network       = google_compute_network.this[0].id
}

resource "google_service_networking_connection" "services" {
  count = local.own && var.services ? 1 : 0

  network                 = google_compute_network.this[0].id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.services[0].name]

  # Google holds the connection for days after the database is gone. It goes with its network.
  deletion_policy = "ABANDON"
}
