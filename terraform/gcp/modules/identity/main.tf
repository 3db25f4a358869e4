# What the master and the agents may do. The master makes and ends machines whose names begin with the cluster's own prefix only (the
# conditions of Google's IAM know the names of machines, and not their labels); agents see their bucket's checkpoints and nothing else.

locals {
  # An account's id has at most 30 characters.
  stem = length(var.cluster_id) <= 19 ? var.cluster_id : "${trimsuffix(substr(var.cluster_id, 0, 12), "-")}-${substr(sha1(var.cluster_id), 0, 6)}"
  role = replace(var.name, "-", "_")

  objects = "projects/_/buckets/${var.bucket}/objects"

  # `resource.name` of a list is the bucket; what is listed is in the attribute.
  folder = { for name in ["checkpoints", "cluster"] : name => "resource.name.startsWith(\"${local.objects}/${name}/\") || api.getAttribute(\"storage.googleapis.com/objectListPrefix\", \"\").startsWith(\"${name}/\")" }
}

resource "google_service_account" "agent" {
  account_id   = "det-${local.stem}-agent"
  project      = var.project
  display_name = "Agents of ${var.name}"
  description  = var.name
}

resource "google_service_account" "master" {
  account_id   = "det-${local.stem}-master"
  project      = var.project
  display_name = "Master of ${var.name}"
  description  = var.name
}

# ------------------------------------------------------------------------------------------------------------------ storage

resource "google_storage_bucket_iam_member" "agent" {
  bucket = var.bucket
  role   = "roles/storage.objectUser"
  member = google_service_account.agent.member

  condition {
    title      = "Checkpoints"
    expression = local.folder["checkpoints"]
  }
}

resource "google_storage_bucket_iam_member" "master" {
  for_each = local.folder

  bucket = var.bucket
  role   = "roles/storage.objectUser"
  member = google_service_account.master.member

  condition {
    title      = title(each.key)
    expression = each.value
  }
}

# ------------------------------------------------------------------------------------------------------------------ machines

resource "google_project_iam_custom_role" "look" {
  role_id     = "${local.role}_look"
  project     = var.project
  title       = "${var.name}: look"
  description = "See machines, their types and what became of requests"
  permissions = [
    "compute.acceleratorTypes.get",
    "compute.acceleratorTypes.list",
    "compute.images.get",
    "compute.images.getFromFamily",
    "compute.images.useReadOnly",
    "compute.instances.get",
    "compute.instances.list",
    "compute.machineTypes.get",
    "compute.machineTypes.list",
    "compute.regions.get",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "compute.zones.get",
    "compute.zones.list",
  ]
}

resource "google_project_iam_member" "look" {
  project = var.project
  role    = google_project_iam_custom_role.look.name
  member  = google_service_account.master.member
}

resource "google_project_iam_custom_role" "machines" {
  role_id     = "${local.role}_machines"
  project     = var.project
  title       = "${var.name}: machines"
  description = "Make and end machines with their disks"
  permissions = [
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.instances.setTags",
  ]
}

resource "google_project_iam_member" "machines" {
  project = var.project
  role    = google_project_iam_custom_role.machines.name
  member  = google_service_account.master.member

  condition {
    title       = "Machines of ${var.name}"
    description = "By the start of their names"
    expression  = "(resource.type == \"compute.googleapis.com/Instance\" && resource.name.extract(\"/instances/{name}\").startsWith(\"${var.agent_prefix}\")) || (resource.type == \"compute.googleapis.com/Disk\" && resource.name.extract(\"/disks/{name}\").startsWith(\"${var.agent_prefix}\"))"
  }
}

resource "google_compute_subnetwork_iam_member" "master" {
  project    = var.project
  region     = var.region
  subnetwork = var.subnetwork
  role       = "roles/compute.networkUser"
  member     = google_service_account.master.member
}

resource "google_service_account_iam_member" "agent_of_master" {
  service_account_id = google_service_account.agent.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.master.member
}

# ------------------------------------------------------------------------------------------------------------------- secrets

resource "google_secret_manager_secret_iam_member" "read" {
  for_each = var.secrets

  secret_id = each.value
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.master.member
}

resource "google_secret_manager_secret_iam_member" "make" {
  for_each = var.made_secrets

  secret_id = each.value
  role      = "roles/secretmanager.secretVersionAdder"
  member    = google_service_account.master.member
}

# The master's machine sets the password of its user in its own database.
resource "google_project_iam_custom_role" "database" {
  count = var.own_database ? 1 : 0

  role_id     = "${local.role}_database"
  project     = var.project
  title       = "${var.name}: database"
  description = "Set the password of a user of a database"
  permissions = [
    "cloudsql.instances.get",
    "cloudsql.users.create",
    "cloudsql.users.list",
    "cloudsql.users.update",
  ]
}

resource "google_project_iam_member" "database" {
  count = var.own_database ? 1 : 0

  project = var.project
  role    = google_project_iam_custom_role.database[0].name
  member  = google_service_account.master.member

  condition {
    title      = "Database of ${var.name}"
    expression = "resource.type == \"sqladmin.googleapis.com/Instance\" && resource.name == \"projects/${var.project}/instances/${var.database_instance}\""
  }
}

# ---------------------------------------------------------------------------------------------------------------------- log

resource "google_project_iam_member" "log" {
  count = var.cloud_logging ? 1 : 0

  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.master.member
}
