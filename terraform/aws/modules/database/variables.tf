variable "name" {
  type        = string
  description = "Name of the resources."
}

variable "tags" {
  type        = map(string)
  description = "Tags of the resources."
}

variable "subnet_ids" {
  type        = list(string)
  description = "Subnets in at least two zones."
}

variable "security_group_id" {
  type        = string
  description = "Its security group."
}

variable "instance_class" {
  type        = string
  description = "Class of its machine."
}

variable "size" {
  type        = number
  description = "Storage in GB."
}

variable "snapshot" {
  type        = string
  description = "Snapshot from which it is created, or null."
}

variable "backup_days" {
  type        = number
  description = "Days that backups are kept."
}

variable "deletion_protection" {
  type        = bool
  description = "Refuse to delete it, and keep a last snapshot."
}

variable "multi_az" {
  type        = bool
  description = "Keep a standby in another zone."
}
