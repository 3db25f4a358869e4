output "master_profile" {
  description = "Instance profile of the master."
  value       = aws_iam_instance_profile.master.name
}

output "agent_profile_arn" {
  description = "Instance profile of the agents."
  value       = aws_iam_instance_profile.agent.arn
}
