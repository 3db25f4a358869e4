# Which connections are let in. Machines are told apart by their service accounts, which no machine can give itself.

resource "google_compute_firewall" "people_to_master" {
  count = length(var.inbound_cidr) > 0 ? 1 : 0

  name                    = "${var.name}-people"
  project                 = var.project
  description             = "People to the master of ${var.name}"
  network                 = var.network
  source_ranges           = var.inbound_cidr
  target_service_accounts = [var.master_account]

  allow {
    protocol = "tcp"
    ports    = ["22", tostring(var.port)]
  }
}

resource "google_compute_firewall" "agents_to_master" {
  name                    = "${var.name}-to-master"
  project                 = var.project
  description             = "Agents and tasks to the master of ${var.name}"
  network                 = var.network
  source_service_accounts = [var.agent_account]
  target_service_accounts = [var.master_account]

  allow {
    protocol = "tcp"
    ports    = [tostring(var.port)]
  }
}

resource "google_compute_firewall" "agents_to_agents" {
  name                    = "${var.name}-agents"
  project                 = var.project
  description             = "Ranks of a distributed training of ${var.name}"
  network                 = var.network
  source_service_accounts = [var.agent_account]
  target_service_accounts = [var.agent_account]

  allow {
    protocol = "tcp"
  }

  allow {
    protocol = "udp"
  }

  allow {
    protocol = "icmp"
  }
}

resource "google_compute_firewall" "master_to_agents" {
  name                    = "${var.name}-to-agents"
  project                 = var.project
  description             = "Services of tasks, through the master of ${var.name}"
  network                 = var.network
  source_service_accounts = [var.master_account]
  target_service_accounts = [var.agent_account]

  allow {
    protocol = "tcp"
    ports    = ["1024-65535"]
  }
}
