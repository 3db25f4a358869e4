# PostgreSQL of RDS: private, encrypted, its password in Secrets Manager and nowhere else.

resource "aws_db_subnet_group" "this" {
  name       = var.name
  subnet_ids = var.subnet_ids
  tags       = var.tags
}

resource "aws_db_instance" "this" {
  identifier     = var.name
  engine         = "postgres"
  engine_version = "16"
  instance_class = var.instance_class

  db_name                     = var.snapshot == null ? "resolute" : null
  username                    = "resolute"
  manage_master_user_password = true
  snapshot_identifier         = var.snapshot

  storage_type          = "gp3"
  allocated_storage     = var.size
  max_allocated_storage = var.size * 5
  storage_encrypted     = true

  db_subnet_group_name   = aws_db_subnet_group.this.name
  vpc_security_group_ids = [var.security_group_id]
  publicly_accessible    = false
  multi_az               = var.multi_az

  backup_retention_period    = var.backup_days
  copy_tags_to_snapshot      = true
  delete_automated_backups   = !var.deletion_protection
  deletion_protection        = var.deletion_protection
  skip_final_snapshot        = !var.deletion_protection
  final_snapshot_identifier  = "${var.name}-last"
  auto_minor_version_upgrade = true

  tags = var.tags

  lifecycle {
    ignore_changes = [snapshot_identifier, db_name]
  }
}
