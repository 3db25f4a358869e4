output "master" {
  description = "Account of the master's machine."
  value       = google_service_account.master.email
}

output "agent" {
  description = "Account of the agents."
  value       = google_service_account.agent.email
}
