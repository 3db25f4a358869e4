output "rules" {
  description = "Names of the rules."
  value       = [for rule in concat(google_compute_firewall.people_to_master, [google_compute_firewall.agents_to_master, google_compute_firewall.agents_to_agents, google_compute_firewall.master_to_agents]) : rule.name]
}
