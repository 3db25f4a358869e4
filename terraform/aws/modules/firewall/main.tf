# Which connections are let in. Every rule is a resource of its own, so that a change of one leaves the others in place.

resource "aws_security_group" "master" {
  name        = "${var.name}-master"
  description = "Master of ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(var.tags, { Name = "${var.name}-master" })
}

resource "aws_security_group" "agent" {
  name        = "${var.name}-agent"
  description = "Agents of ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(var.tags, { Name = "${var.name}-agent" })
}

resource "aws_security_group" "database" {
  name        = "${var.name}-database"
  description = "Database of ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(var.tags, { Name = "${var.name}-database" })
}

resource "aws_security_group" "shared_file_system" {
  name        = "${var.name}-files"
  description = "Shared file system of ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(var.tags, { Name = "${var.name}-files" })
}

resource "aws_vpc_security_group_ingress_rule" "people_to_master" {
  for_each = toset(var.inbound_cidr)

  security_group_id = aws_security_group.master.id
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = var.port
  to_port           = var.port
  tags              = merge(var.tags, { Name = "People to the master" })
}

resource "aws_vpc_security_group_ingress_rule" "ssh_to_master" {
  for_each = var.ssh ? toset(var.inbound_cidr) : toset([])

  security_group_id = aws_security_group.master.id
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
  tags              = merge(var.tags, { Name = "SSH to the master" })
}

resource "aws_vpc_security_group_ingress_rule" "agents_to_master" {
  security_group_id            = aws_security_group.master.id
  referenced_security_group_id = aws_security_group.agent.id
  ip_protocol                  = "tcp"
  from_port                    = var.port
  to_port                      = var.port
  tags                         = merge(var.tags, { Name = "Agents and tasks to the master" })
}

resource "aws_vpc_security_group_ingress_rule" "agents_to_agents" {
  security_group_id            = aws_security_group.agent.id
  referenced_security_group_id = aws_security_group.agent.id
  ip_protocol                  = "-1"
  tags                         = merge(var.tags, { Name = "Ranks of a distributed training" })
}

resource "aws_vpc_security_group_ingress_rule" "master_to_agents" {
  security_group_id            = aws_security_group.agent.id
  referenced_security_group_id = aws_security_group.master.id
  ip_protocol                  = "tcp"
  from_port                    = 1024
  to_port                      = 65535
  tags                         = merge(var.tags, { Name = "Services of tasks, through the master" })
}

resource "aws_vpc_security_group_ingress_rule" "master_to_database" {
  security_group_id            = aws_security_group.database.id
  referenced_security_group_id = aws_security_group.master.id
  ip_protocol                  = "tcp"
  from_port                    = 5432
  to_port                      = 5432
  tags                         = merge(var.tags, { Name = "Master to its database" })
}

resource "aws_vpc_security_group_ingress_rule" "agents_to_files" {
  security_group_id            = aws_security_group.shared_file_system.id
  referenced_security_group_id = aws_security_group.agent.id
  ip_protocol                  = "tcp"
  from_port                    = 2049
  to_port                      = 2049
  tags                         = merge(var.tags, { Name = "Agents to the shared file system" })
}

# Packages, clouds' interfaces and images are outside.
resource "aws_vpc_security_group_egress_rule" "out" {
  for_each = { master = aws_security_group.master.id, agent = aws_security_group.agent.id }

  security_group_id = each.value
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
  tags              = merge(var.tags, { Name = "Everything outside" })
}
