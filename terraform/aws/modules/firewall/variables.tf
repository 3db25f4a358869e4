variable "name" {
  type        = string
  description = "Name of what is made."
}

variable "tags" {
  type        = map(string)
  description = "Tags of what is made."
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
  description = "Networks from which people come."
}

variable "ssh" {
  type        = bool
  description = "People may log in to the master's machine from there."
}
