output "source" {
  description = "What is mounted."
  value       = "${google_filestore_instance.this.networks[0].ip_addresses[0]}:/shared_fs"
}
