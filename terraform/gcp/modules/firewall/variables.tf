variable "name" {
  type        = string
  description = "Name of the resources."
}

variable "project" {
  type        = string
  description = "Project."
}

variable "network" {
  type        = string
  description = "The network."
}

variable "port" {
  type        = number
  description = "Port of the master."
}

variable "inbound_cidr" {
  type        = list(string)
  description = "Networks that may connect to the master."
}

variable "master_account" {
  type        = string
  description = "Account of the master's machine."
}

variable "agent_account" {
  type        = string
  description = "Account of the agents."
}
