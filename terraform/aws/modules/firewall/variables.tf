variable "name" {
  type        = string
  description = "Name of the resources."
}

variable "tags" {
  type        = map(string)
  description = "Tags of the resources."
}

variable "vpc_id" {
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

variable "ssh" {
  type        = bool
  description = "Allow logins to the master's machine from these networks."
}
