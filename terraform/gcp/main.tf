# A cluster: the master with its database and its bucket, and the resources that the machines of the pools use. The machines
# of the pools are not resources of this module: the master owns them.

data "google_compute_zones" "this" {
  project = var.project_id
  region  = var.region
}

locals {
  name   = "resolute-${var.cluster_id}"
  zone   = var.zone == null ? "${var.region}-b" : var.zone
  zones  = length(var.zones) > 0 ? var.zones : data.google_compute_zones.this.names
  labels = { "resolute-deployment" = var.cluster_id }

  # Prefix of the names of the pools' machines. No name of another cluster has this prefix, because cluster names have no two dashes.
  agent_prefix = "${local.name}--"

  database = var.existing_database != null ? {
    host            = var.existing_database.host
    port            = tonumber(var.existing_database.port)
    name            = var.existing_database.name
    user            = var.existing_database.user
    ssl_mode        = var.existing_database.ssl_mode
    password_secret = var.existing_database.password_secret
    instance        = null
    } : {
    host            = module.database[0].host
    port            = 5432
    name            = module.database[0].database
    user            = module.database[0].user
    ssl_mode        = "require"
    password_secret = module.database[0].password_secret
    instance        = module.database[0].instance
  }

  shared_file_system = (var.filestore ? module.shared_file_system[0].source : var.filestore_address)
}

module "network" {
  source = "./modules/network"

  name       = local.name
  labels     = local.labels
  project    = var.project_id
  region     = var.region
  cidr       = var.network_cidr
  private    = var.private
  services   = var.existing_database == null
  network    = var.network
  subnetwork = var.subnetwork
}

module "identity" {
  source = "./modules/identity"

  name              = local.name
  cluster_id        = var.cluster_id
  project           = var.project_id
  region            = var.region
  bucket            = module.storage.name
  subnetwork        = module.network.subnetwork
  agent_prefix      = local.agent_prefix
  secrets           = { database = local.database.password_secret, seal = module.master.seal_secret, password = module.master.password_secret }
  made_secrets      = merge({ seal = module.master.seal_secret, password = module.master.password_secret }, var.existing_database == null ? { database = local.database.password_secret } : {})
  database_instance = local.database.instance
  own_database      = var.existing_database == null
  cloud_logging     = var.cloud_logging
}

module "firewall" {
  source = "./modules/firewall"

  name           = local.name
  project        = var.project_id
  network        = module.network.network
  port           = var.port
  inbound_cidr   = var.private ? ["35.235.240.0/20"] : var.inbound_cidr
  master_account = module.identity.master
  agent_account  = module.identity.agent
}

module "storage" {
  source = "./modules/storage"

  name        = "${local.name}-${substr(sha1(var.project_id), 0, 8)}"
  labels      = local.labels
  project     = var.project_id
  region      = var.region
  versioning  = var.bucket_versioning
  expiry_days = var.checkpoint_expiry_days
}

module "database" {
  source = "./modules/database"
  count  = var.existing_database == null ? 1 : 0

  name                = local.name
  labels              = local.labels
  project             = var.project_id
  region              = var.region
  zone                = local.zone
  network             = module.network.services_network
  tier                = var.db_instance_type
  size                = var.db_size
  backup_days         = var.db_backup_days
  deletion_protection = var.deletion_protection
  regional            = var.regional_database
}

module "shared_file_system" {
  source = "./modules/shared_file_system"
  count  = var.filestore ? 1 : 0

  name    = local.name
  labels  = local.labels
  project = var.project_id
  zone    = local.zone
  network = module.network.network
}

module "master" {
  source = "./modules/master"

  name          = local.name
  labels        = local.labels
  project       = var.project_id
  region        = var.region
  zone          = local.zone
  instance_type = var.master_instance_type
  image         = var.master_image
  disk_size     = var.master_disk_size
  network       = module.network.network
  subnetwork    = module.network.subnetwork
  public        = !var.private
  account       = module.identity.master
  bucket        = module.storage.name
  wheel         = var.wheel
  pip_options   = var.pip_options
  environment   = var.environment
  log           = var.cloud_logging ? "projects/${var.project_id}/logs/${local.name}" : null
  facts         = local.facts
}
