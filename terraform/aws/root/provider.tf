# Beside the files of the module, in the directory of a cluster.

locals {
  emulated = var.endpoint_url != null
}

provider "aws" {
  region                      = var.region
  profile                     = var.profile
  skip_credentials_validation = local.emulated
  skip_metadata_api_check     = local.emulated ? "true" : null
  skip_region_validation      = local.emulated
  s3_use_path_style           = local.emulated
  max_retries                 = local.emulated ? 2 : null

  default_tags {
    tags = merge(var.add_tag, { "resolute-deployment" = var.cluster_id })
  }
}
