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

variable "cidr" {
  type        = string
  description = "Addresses of the network."
}

variable "private" {
  type        = bool
  description = "No machine has a public address."
}

variable "services" {
  type        = bool
  description = "Make room for the private addresses of a database."
}

variable "network" {
  type        = string
  description = "An existing network, or null."
}

variable "subnetwork" {
  type        = string
  description = "Subnetwork of the existing network, or null."
}
