variable "name" {
  type        = string
  description = "Name of the resources."
}

variable "tags" {
  type        = map(string)
  description = "Tags of the resources."
}

variable "partition" {
  type        = string
  description = "Partition of AWS, such as aws."
}

variable "account" {
  type        = string
  description = "Number of the account."
}

variable "region" {
  type        = string
  description = "Region."
}

variable "bucket_arn" {
  type        = string
  description = "The cluster's bucket."
}

variable "agent_tag" {
  type        = object({ key = string, value = string })
  description = "Tag that every machine of the cluster carries."
}

variable "secret_arns" {
  type        = list(string)
  description = "Secrets that the master reads."
}

variable "written_arns" {
  type        = list(string)
  description = "Secrets that the master's machine creates at its first start."
}

variable "log_group" {
  type        = string
  description = "CloudWatch group of the master's log, or null."
}
