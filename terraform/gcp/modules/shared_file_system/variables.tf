variable "name" {
  type        = string
  description = "Name of what is made."
}

variable "labels" {
  type        = map(string)
  description = "Labels of what is made."
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
