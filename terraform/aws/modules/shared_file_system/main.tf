# EFS, mounted by the agents.

resource "aws_efs_file_system" "this" {
  count = var.id == null ? 1 : 0

  encrypted = true
  tags      = merge(var.tags, { Name = var.name })
}

data "aws_efs_file_system" "existing" {
  count = var.id == null ? 0 : 1

  file_system_id = var.id
}

# An existing file system has mount targets already.
resource "aws_efs_mount_target" "this" {
  for_each = var.id == null ? var.subnets : {}

  file_system_id  = aws_efs_file_system.this[0].id
  subnet_id       = each.value
  security_groups = [var.security_group_id]
}
