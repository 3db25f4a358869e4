output "host" {
  description = "Address."
  value       = aws_db_instance.this.address
}

output "port" {
  description = "Port."
  value       = aws_db_instance.this.port
}

output "database" {
  description = "Name of the database."
  value       = "resolute"
}

output "user" {
  description = "User."
  value       = "resolute"
}

output "secret_arn" {
  description = "Secret with the password, as JSON with the keys username and password."
  value       = aws_db_instance.this.master_user_secret[0].secret_arn
}
