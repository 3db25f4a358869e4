output "master" {
  description = "Security group of the master."
  value       = aws_security_group.master.id
}

output "agent" {
  description = "Security group of the agents."
  value       = aws_security_group.agent.id
}

output "database" {
  description = "Security group of the database."
  value       = aws_security_group.database.id
}

output "shared_file_system" {
  description = "Security group of the shared file system."
  value       = aws_security_group.shared_file_system.id
}
