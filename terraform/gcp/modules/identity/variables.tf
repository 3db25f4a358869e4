variable "name" {
  type        = string
  description = "Name of the resources."
}

variable "cluster_id" {
  type        = string
  description = "Name of the cluster."
}

variable "project" {
  type        = string
  description = "Project."
}

variable "region" {
  type        = string
  description = "Region."
}

variable "bucket" {
  type        = string
  description = "The cluster's bucket."
}

variable "subnetwork" {
  type        = string
  description = "Subnetwork of the machines."
}

variable "agent_prefix" {
  type        = string
  description = "Start of the names of the machines that the master buys."
}

variable "secrets" {
  type        = map(string)
  description = "Secrets that the master's machine reads."
}

variable "made_secrets" {
  type        = map(string)
  description = "Secrets that the master's machine makes."
}

variable "own_database" {
  type        = bool
  description = "The database is one of the cluster's own."
}

variable "database_instance" {
  type        = string
  description = "Name of the database's instance, or null."
}

variable "cloud_logging" {
  type        = bool
  description = "The master's log goes to Cloud Logging."
}
