output "instance_id" {
  description = "The machine: its zone and its name."
  value       = "${var.zone}/${google_compute_instance.this.name}"
}

output "address" {
  description = "Address for users: public if it has one, else in the network."
  value       = var.public ? google_compute_address.this[0].address : google_compute_instance.this.network_interface[0].network_ip
}

output "seal_secret" {
  description = "Secret with the sealing key."
  value       = google_secret_manager_secret.seal.id
}

output "password_secret" {
  description = "Secret with the password of the first users."
  value       = google_secret_manager_secret.password.id
}
