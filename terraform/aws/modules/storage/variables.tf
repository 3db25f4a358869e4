variable "name" {
  type        = string
  description = "Name of the bucket."
}

variable "tags" {
  type        = map(string)
  description = "Tags of the resources."
}

variable "versioning" {
  type        = bool
  description = "Keep overwritten and deleted objects."
}

variable "expiry_days" {
  type        = number
  description = "Delete checkpoints after this number of days; 0 keeps them."
}

variable "lifecycle_rules" {
  type        = bool
  description = "Remove unfinished uploads and old versions."
}

variable "tls_only" {
  type        = bool
  description = "Refuse connections that are not encrypted."
}
