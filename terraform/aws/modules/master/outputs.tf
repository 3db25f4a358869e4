output "instance_id" {
  description = "The machine."
  value       = aws_instance.this.id
}

output "address" {
  description = "Address for users: public if it has one, else in the network."
  value       = var.public ? aws_eip.this[0].public_ip : aws_instance.this.private_ip
}

output "seal_secret_arn" {
  description = "Secret with the sealing key."
  value       = aws_secretsmanager_secret.seal.arn
}

output "password_secret_arn" {
  description = "Secret with the password of the first users."
  value       = aws_secretsmanager_secret.password.arn
}

output "log_group" {
  description = "CloudWatch group of the log, or null."
  value       = var.log_retention_days > 0 ? aws_cloudwatch_log_group.this[0].name : null
}
