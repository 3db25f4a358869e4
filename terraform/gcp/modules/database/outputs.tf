output "host" {
  description = "Private address."
  value       = google_sql_database_instance.this.private_ip_address
}

output "instance" {
  description = "Name of the instance."
  value       = google_sql_database_instance.this.name
}

output "database" {
  description = "Name of the database."
  value       = google_sql_database.this.name
}

output "user" {
  description = "User, which the master's machine makes."
  value       = "resolute"
}

output "password_secret" {
  description = "Secret with the password, which the master's machine creates at its first start."
  value       = google_secret_manager_secret.password.id
}
