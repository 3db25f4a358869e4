output "vpc_id" {
  description = "The network."
  value       = local.own ? aws_vpc.this[0].id : var.vpc_id
}

output "agent_subnets" {
  description = "Subnets by zone."
  value = (local.own
    ? { for subnet in aws_subnet.agents : subnet.availability_zone => subnet.id }
  : { for subnet in data.aws_subnet.existing : subnet.availability_zone => subnet.id })
}

output "master_subnet_id" {
  description = "Subnet of the master."
  value       = local.own ? aws_subnet.agents[0].id : var.subnet_ids[0]
}
