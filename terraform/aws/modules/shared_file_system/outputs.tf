output "dns_name" {
  description = "Name under which it is mounted."
  value       = var.id == null ? aws_efs_file_system.this[0].dns_name : data.aws_efs_file_system.existing[0].dns_name
}
