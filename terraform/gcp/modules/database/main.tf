# PostgreSQL of Cloud SQL, with a private address only. The master's machine makes the user and its password, which is in Secret
# Manager and nowhere else.

# A name is not free again for a week after its database was deleted.
resource "terraform_data" "made" {
  input = formatdate("YYMMDDhhmmss", plantimestamp())

  lifecycle {
    ignore_changes = [input]
  }
}

resource "google_sql_database_instance" "this" {
  name             = "${var.name}-${terraform_data.made.output}"
  project          = var.project
  region           = var.region
  database_version = "POSTGRES_16"

  # Of Terraform itself; that of the settings holds for everybody.
  deletion_protection = var.deletion_protection

  settings {
    tier                        = var.tier
    edition                     = "ENTERPRISE"
    availability_type           = var.regional ? "REGIONAL" : "ZONAL"
    disk_type                   = "PD_SSD"
    disk_size                   = var.size
    disk_autoresize             = true
    deletion_protection_enabled = var.deletion_protection
    user_labels                 = var.labels

    location_preference {
      zone = var.zone
    }

    ip_configuration {
      ipv4_enabled    = false
      private_network = var.network
      ssl_mode        = "ENCRYPTED_ONLY"
    }

    backup_configuration {
      enabled                        = var.backup_days > 0
      point_in_time_recovery_enabled = var.backup_days > 0

      dynamic "backup_retention_settings" {
        for_each = var.backup_days > 0 ? [var.backup_days] : []

        content {
          retained_backups = backup_retention_settings.value
        }
      }
    }
  }

  lifecycle {
    # It grows by itself.
    ignore_changes = [settings[0].disk_size]
  }
}

resource "google_sql_database" "this" {
  name     = "resolute"
  project  = var.project
  instance = google_sql_database_instance.this.name

  # It goes with its instance.
  deletion_policy = "ABANDON"
}

resource "google_secret_manager_secret" "password" {
  secret_id = "${var.name}-database"
  project   = var.project
  labels    = var.labels

  replication {
    auto {}
  }
}
