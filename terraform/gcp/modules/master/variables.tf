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

variable "instance_type" {
  type        = string
  description = "Machine type."
}

variable "image" {
  type        = string
  description = "Machine image."
}

variable "disk_size" {
  type        = number
  description = "Disk in GB."
}

variable "network" {
  type        = string
  description = "The network."
}

variable "subnetwork" {
  type        = string
  description = "The subnetwork."
}

variable "public" {
  type        = bool
  description = "The machine has a public address."
}

variable "account" {
  type        = string
  description = "Its service account."
}

variable "bucket" {
  type        = string
  description = "The cluster's bucket."
}

variable "wheel" {
  type        = string
  description = "File of the wheel to install."
}

variable "pip_options" {
  type        = string
  description = "Options of pip."
}

variable "environment" {
  type        = map(string)
  description = "Variables of an emulator of Google Cloud."
}

variable "log" {
  type        = string
  description = "Log of Cloud Logging, or null."
}

variable "facts" {
  type        = any
  description = "What the master's configuration is rendered from."
}
