variable "name" {
  type        = string
  description = "Name of the resources."
}

variable "tags" {
  type        = map(string)
  description = "Tags of the resources."
}

variable "cluster_id" {
  type        = string
  description = "Name of the cluster."
}

variable "region" {
  type        = string
  description = "Region."
}

variable "instance_type" {
  type        = string
  description = "Machine type."
}

variable "image_id" {
  type        = string
  description = "Machine image, or null for the newest Ubuntu 24.04."
}

variable "disk_size" {
  type        = number
  description = "Disk in GB."
}

variable "keypair" {
  type        = string
  description = "EC2 key pair."
}

variable "subnet_id" {
  type        = string
  description = "Subnet."
}

variable "public" {
  type        = bool
  description = "The machine has a public address."
}

variable "security_group_id" {
  type        = string
  description = "Security group."
}

variable "instance_profile" {
  type        = string
  description = "Instance profile."
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

variable "endpoint_url" {
  type        = string
  description = "Address of an emulator of AWS, or null."
}

variable "log_retention_days" {
  type        = number
  description = "Days of the log in CloudWatch; 0 sends none."
}

variable "facts" {
  type        = any
  description = "What the master's configuration is rendered from."
}
