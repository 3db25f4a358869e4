# A cluster: the master with its database and its bucket, and the resources that the machines of the pools use. The machines
# of the pools are not resources of this module: the master owns them.

data "aws_caller_identity" "this" {}
data "aws_partition" "this" {}
data "aws_region" "this" {}

locals {
  name    = "resolute-${var.cluster_id}"
  region  = data.aws_region.this.name
  private = var.deployment_type == "secure"
  tags    = { "resolute-deployment" = var.cluster_id }

  database = var.existing_database != null ? var.existing_database : {
    host                = module.database[0].host
    port                = module.database[0].port
    name                = module.database[0].database
    user                = module.database[0].user
    ssl_mode            = "require"
    password_secret_arn = module.database[0].secret_arn
  }

  # The tag that the master sets on its machines. Its permissions are restricted to this tag.
  agent_tag = { key = "resolute-deployment", value = var.cluster_id }
}

module "network" {
  source = "./modules/network"

  name       = local.name
  tags       = local.tags
  cidr       = var.network_cidr
  zones      = var.zones
  private    = local.private
  vpc_id     = var.vpc_id
  subnet_ids = var.agent_subnet_id
}

module "firewall" {
  source = "./modules/firewall"

  name         = local.name
  tags         = local.tags
  vpc_id       = module.network.vpc_id
  port         = var.port
  inbound_cidr = var.inbound_cidr
  ssh          = !local.private
}

module "storage" {
  source = "./modules/storage"

  name            = "${local.name}-${data.aws_caller_identity.this.account_id}-${local.region}"
  tags            = local.tags
  versioning      = var.bucket_versioning
  lifecycle_rules = var.bucket_lifecycle
  expiry_days     = var.checkpoint_expiry_days
  tls_only        = var.bucket_tls_only
}

module "database" {
  source = "./modules/database"
  count  = var.existing_database == null ? 1 : 0

  name                = local.name
  tags                = local.tags
  subnet_ids          = values(module.network.agent_subnets)
  security_group_id   = module.firewall.database
  instance_class      = var.db_instance_type
  size                = var.db_size
  snapshot            = var.db_snapshot
  backup_days         = var.db_backup_days
  deletion_protection = var.deletion_protection
  multi_az            = var.multi_az
}

module "shared_file_system" {
  source = "./modules/shared_file_system"
  count  = var.deployment_type == "efs" ? 1 : 0

  name              = local.name
  tags              = local.tags
  id                = var.efs_id
  subnets           = module.network.agent_subnets
  security_group_id = module.firewall.shared_file_system
}

module "identity" {
  source = "./modules/identity"

  name         = local.name
  tags         = local.tags
  partition    = data.aws_partition.this.partition
  account      = data.aws_caller_identity.this.account_id
  region       = local.region
  bucket_arn   = module.storage.arn
  agent_tag    = local.agent_tag
  secret_arns  = [local.database.password_secret_arn, module.master.seal_secret_arn, module.master.password_secret_arn]
  written_arns = [module.master.seal_secret_arn, module.master.password_secret_arn]
  log_group    = module.master.log_group
}

module "master" {
  source = "./modules/master"

  name               = local.name
  tags               = local.tags
  cluster_id         = var.cluster_id
  region             = local.region
  instance_type      = var.master_instance_type
  image_id           = var.master_image_id
  disk_size          = var.master_disk_size
  keypair            = var.keypair
  subnet_id          = module.network.master_subnet_id
  public             = !local.private
  security_group_id  = module.firewall.master
  instance_profile   = module.identity.master_profile
  bucket             = module.storage.name
  wheel              = var.wheel
  pip_options        = var.pip_options
  endpoint_url       = var.endpoint_url
  log_retention_days = var.log_retention_days
  facts              = local.facts
}
