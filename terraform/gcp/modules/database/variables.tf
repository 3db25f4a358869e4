variable "name" {
  type        = string
  description = "Name of the resources."
}

variable "labels" {
  type        = map(string)
  description = "Labels of the resources."
}

variable "project" {
  type        = string
  description = "Project."
}

variable "region" {
  type        = string
  description = "Region."
}

variable "zone" {
  type        = string
  description = "Zone."
}

variable "network" {
  type        = string
  description = "Network in which it has its address."
}

variable "tier" {
  type        = string
  description = "Tier of its machine."
}

variable "size" {
  type        = number
  description = "Storage in GB."
}

variable "backup_days" {
  type        = number
  description = "Daily backups that are kept; 0 makes none."
}

variable "deletion_protection" {
  type        = bool
  description = "Refuse to delete it."
}

variable "regional" {
  type        = bool
  description = "Keep a standby in another zone."
}
