# One bucket: checkpoints/ is of the tasks, cluster/ of the master's machine. Google encrypts what it stores.

resource "google_storage_bucket" "this" {
  name     = var.name
  project  = var.project
  location = upper(var.region)
  labels   = var.labels

  force_destroy               = false
  public_access_prevention    = "enforced"
  uniform_bucket_level_access = true

  versioning {
    enabled = var.versioning
  }

  # What is deleted is paid for a week more, unless it is to be kept.
  soft_delete_policy {
    retention_duration_seconds = var.versioning ? 604800 : 0
  }

  # Parts of uploads whose machine was lost are paid for until they are removed.
  lifecycle_rule {
    condition {
      age = 3
    }

    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  lifecycle_rule {
    condition {
      days_since_noncurrent_time = 30
    }

    action {
      type = "Delete"
    }
  }

  dynamic "lifecycle_rule" {
    for_each = var.expiry_days > 0 ? [var.expiry_days] : []

    content {
      condition {
        age            = lifecycle_rule.value
        matches_prefix = ["checkpoints/"]
      }

      action {
        type = "Delete"
      }
    }
  }
}
