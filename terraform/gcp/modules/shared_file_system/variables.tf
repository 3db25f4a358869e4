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

variable "zone" {
  type        = string
  description = "Zone."
}

variable "network" {
  type        = string
  description = "The network."
}
