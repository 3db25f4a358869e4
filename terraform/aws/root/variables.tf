# Variables of the root module: they are flags of `det deploy aws up` as well.

variable "region" {
  type        = string
  description = "Region of the cluster. None takes the one of your AWS configuration."
  default     = null
}

variable "profile" {
  type        = string
  description = "Profile of your AWS configuration."
  default     = null
}

variable "add_tag" {
  type        = map(string)
  default     = {}
  description = "More tags of all resources and machines, as key=value."

  validation {
    condition     = !contains(keys(var.add_tag), "resolute-deployment") && alltrue([for key in keys(var.add_tag) : !startswith(key, "aws:")])
    error_message = "An add_tag must not be resolute-deployment and not begin with aws:, which is Amazon's."
  }
}
