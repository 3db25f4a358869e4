# A network of our own, or an existing one. Master and agents are in one subnet a zone; without public addresses they reach the internet
# through one NAT gateway.

data "aws_availability_zones" "this" {
  state = "available"

  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

data "aws_subnet" "existing" {
  count = length(var.subnet_ids)
  id    = var.subnet_ids[count.index]
}

locals {
  own   = var.vpc_id == null
  zones = local.own ? (length(var.zones) > 0 ? var.zones : slice(data.aws_availability_zones.this.names, 0, min(4, length(data.aws_availability_zones.this.names)))) : []
}

resource "aws_vpc" "this" {
  count = local.own ? 1 : 0

  cidr_block           = var.cidr
  enable_dns_hostnames = true
  enable_dns_support   = true
  tags                 = merge(var.tags, { Name = var.name })
}

resource "aws_internet_gateway" "this" {
  count = local.own ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = merge(var.tags, { Name = var.name })
}

resource "aws_subnet" "agents" {
  count = length(local.zones)

  vpc_id                  = aws_vpc.this[0].id
  availability_zone       = local.zones[count.index]
  cidr_block              = cidrsubnet(var.cidr, 4, count.index)
  map_public_ip_on_launch = false
  tags                    = merge(var.tags, { Name = "${var.name}-${local.zones[count.index]}" })
}

resource "aws_route_table" "agents" {
  count = local.own ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = merge(var.tags, { Name = var.name })
}

resource "aws_route" "agents" {
  count = local.own ? 1 : 0

  route_table_id         = aws_route_table.agents[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = var.private ? null : aws_internet_gateway.this[0].id
  nat_gateway_id         = var.private ? aws_nat_gateway.this[0].id : null
}

resource "aws_route_table_association" "agents" {
  count = length(local.zones)

  subnet_id      = aws_subnet.agents[count.index].id
  route_table_id = aws_route_table.agents[0].id
}

# The NAT gateway has a subnet of its own, the only one with a way in from the internet.
resource "aws_subnet" "gateway" {
  count = local.own && var.private ? 1 : 0

  vpc_id                  = aws_vpc.this[0].id
  availability_zone       = local.zones[0]
  cidr_block              = cidrsubnet(var.cidr, 4, 15)
  map_public_ip_on_launch = false
  tags                    = merge(var.tags, { Name = "${var.name}-gateway" })
}

resource "aws_route_table" "gateway" {
  count = local.own && var.private ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = merge(var.tags, { Name = "${var.name}-gateway" })
}

resource "aws_route" "gateway" {
  count = local.own && var.private ? 1 : 0

  route_table_id         = aws_route_table.gateway[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this[0].id
}

resource "aws_route_table_association" "gateway" {
  count = local.own && var.private ? 1 : 0

  subnet_id      = aws_subnet.gateway[0].id
  route_table_id = aws_route_table.gateway[0].id
}

resource "aws_eip" "gateway" {
  count = local.own && var.private ? 1 : 0

  domain = "vpc"
  tags   = merge(var.tags, { Name = "${var.name}-gateway" })
}

resource "aws_nat_gateway" "this" {
  count = local.own && var.private ? 1 : 0

  allocation_id = aws_eip.gateway[0].id
  subnet_id     = aws_subnet.gateway[0].id
  tags          = merge(var.tags, { Name = var.name })

  depends_on = [aws_route.gateway]
}

# Checkpoints neither leave the network nor are paid by the gigabyte.
resource "aws_vpc_endpoint" "storage" {
  count = local.own ? 1 : 0

  vpc_id          = aws_vpc.this[0].id
  service_name    = "com.amazonaws.${data.aws_region.this.name}.s3"
  route_table_ids = [aws_route_table.agents[0].id]
  tags            = merge(var.tags, { Name = var.name })
}

data "aws_region" "this" {}
