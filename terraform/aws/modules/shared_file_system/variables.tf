variable "name" {
  type        = string
  description = "Name of the resources."
}

variable "tags" {
  type        = map(string)
  description = "Tags of the resources."
}

variable "id" {
  type        = string
  description = "An existing file system, or null."
}

variable "subnets" {
  type        = map(string)
  description = "Subnets by zone."
}

variable "security_group_id" {
  type        = string
  description = "Security group of the mount targets."
}
