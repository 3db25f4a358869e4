# Variables of the root module: they are flags of `det deploy gcp up` as well.

variable "keypath" {
  type        = string
  default     = null
  description = "File with the key of a service account. None takes the application default credentials."
}

variable "add_label" {
  type        = map(string)
  default     = {}
  description = "More labels of all resources, as key=value."

  validation {
    condition = alltrue([
      for key, value in var.add_label : can(regex("^[a-z][-_a-z0-9]{0,62}$", key)) && can(regex("^[-_a-z0-9]{0,63}$", value))
    ])
    error_message = "An add_label must be key=value of small letters, digits, dashes and underscores, at most 63 each, a letter first."
  }

  validation {
    condition = alltrue([
      for key in keys(var.add_label) :
      !contains(["resolute-deployment", "managed-by", "determined-master-host", "determined-master-port", "determined-resource-pool"], key)
    ])
    error_message = "An add_label must not be resolute-deployment, managed-by, determined-master-host, determined-master-port or determined-resource-pool."
  }
}
