# The master's machine. What it runs and how is in the bucket (cluster/desired.json): a change reaches the machine without a new one.

locals {
  wheel = "cluster/wheels/${filesha256(var.wheel)}/${basename(var.wheel)}"
}

resource "google_secret_manager_secret" "seal" {
  secret_id = "${var.name}-seal"
  project   = var.project
  labels    = var.labels

  replication {
    auto {}
  }
}

resource "google_secret_manager_secret" "password" {
  secret_id = "${var.name}-initial-password"
  project   = var.project
  labels    = var.labels

  replication {
    auto {}
  }
}

resource "google_storage_bucket_object" "wheel" {
  bucket = var.bucket
  name   = local.wheel
  source = var.wheel
}

resource "google_storage_bucket_object" "desired" {
  bucket       = var.bucket
  name         = "cluster/desired.json"
  content_type = "application/json"
  content = jsonencode({
    wheel           = local.wheel
    wheel_sha256    = filesha256(var.wheel)
    pip_options     = var.pip_options
    seal_secret     = google_secret_manager_secret.seal.id
    password_secret = google_secret_manager_secret.password.id
    log             = var.log
    addresses       = local.addresses
    facts           = var.facts
  })

  depends_on = [google_storage_bucket_object.wheel]
}

resource "google_compute_address" "this" {
  count = var.public ? 1 : 0

  name        = "${var.name}-master"
  project     = var.project
  region      = var.region
  description = "Master of ${var.name}"
  labels      = var.labels
}

resource "google_compute_instance" "this" {
  name         = "${var.name}-master"
  project      = var.project
  zone         = var.zone
  description  = "Master of ${var.name}"
  machine_type = var.instance_type
  labels       = var.labels

  # A change of its type or its account stops the machine and starts it again.
  allow_stopping_for_update = true

  boot_disk {
    initialize_params {
      image  = var.image
      size   = var.disk_size
      type   = "pd-balanced"
      labels = var.labels
    }
  }

  network_interface {
    network    = var.network
    subnetwork = var.subnetwork

    dynamic "access_config" {
      for_each = var.public ? [google_compute_address.this[0].address] : []

      content {
        nat_ip = access_config.value
      }
    }
  }

  service_account {
    email  = var.account
    scopes = ["cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot          = true
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  metadata = {
    enable-oslogin         = "TRUE"
    block-project-ssh-keys = "TRUE"
    startup-script         = local.startup_script
  }

  # What it boots into.
  depends_on = [google_storage_bucket_object.desired]

  lifecycle {
    # A newer image applies to the next machine. It does not replace this one.
    ignore_changes = [boot_disk[0].initialize_params[0].image]
  }
}

locals {
  addresses = compact([var.public ? google_compute_address.this[0].address : null])

  startup_script = join("\n", concat(
    [
      "#!/bin/bash",
      "CLOUD='gcp'",
      "BUCKET='${var.bucket}'",
      "PIP_OPTIONS='${var.pip_options}'",
      "PACKAGES='google-cloud-storage>=2.18'",
      "FETCH='${file("${path.module}/fetch.py")}'",
    ],
    [for name, value in var.environment : "export ${name}='${value}'"],
    [file("${path.module}/../../../shared/boot.sh")],
  ))
}
