variable "name" {
  type        = string
  description = "Name of the resources."
}

variable "tags" {
  type        = map(string)
  description = "Tags of the resources."
}

variable "cidr" {
  type        = string
  description = "Addresses of the network."
}

variable "zones" {
  type        = list(string)
  description = "Zones; none takes up to four of the region."
}

variable "private" {
  type        = bool
  description = "No machine has a public address."
}

variable "vpc_id" {
  type        = string
  description = "An existing network, or null."
}

variable "subnet_ids" {
  type        = list(string)
  description = "Subnets of the existing network."
}
