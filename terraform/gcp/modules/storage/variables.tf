variable "name" {
  type        = string
  description = "Name of the bucket."
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

variable "versioning" {
  type        = bool
  description = "Keep overwritten and deleted objects."
}

variable "expiry_days" {
  type        = number
  description = "Delete checkpoints after this number of days; 0 keeps them."
}
