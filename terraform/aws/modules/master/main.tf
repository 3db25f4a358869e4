# The master's machine. What it runs and how is in the bucket (cluster/desired.json): a change reaches the machine without a new one.

data "aws_ssm_parameter" "ubuntu" {
  count = var.image_id == null ? 1 : 0
  name  = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
}

locals {
  wheel = "cluster/wheels/${filesha256(var.wheel)}/${basename(var.wheel)}"
}

resource "aws_secretsmanager_secret" "seal" {
  name                    = "${var.name}/seal"
  description             = "Key that seals the cluster's secrets in its database. The master's machine creates it at its first start."
  recovery_window_in_days = 0
  tags                    = var.tags
}

resource "aws_secretsmanager_secret" "password" {
  name                    = "${var.name}/initial-password"
  description             = "Password of the first users. The master's machine creates it at its first start."
  recovery_window_in_days = 0
  tags                    = var.tags
}

resource "aws_s3_object" "wheel" {
  bucket      = var.bucket
  key         = local.wheel
  source      = var.wheel
  source_hash = filesha256(var.wheel)
}

resource "aws_s3_object" "desired" {
  bucket       = var.bucket
  key          = "cluster/desired.json"
  content_type = "application/json"
  content = jsonencode({
    wheel           = local.wheel
    wheel_sha256    = filesha256(var.wheel)
    pip_options     = var.pip_options
    seal_secret     = aws_secretsmanager_secret.seal.arn
    password_secret = aws_secretsmanager_secret.password.arn
    log             = var.log_retention_days > 0 ? aws_cloudwatch_log_group.this[0].name : null
    addresses       = local.addresses
    facts           = var.facts
  })

  depends_on = [aws_s3_object.wheel]
}

resource "aws_cloudwatch_log_group" "this" {
  count = var.log_retention_days > 0 ? 1 : 0

  name              = "/resolute/${var.cluster_id}"
  retention_in_days = var.log_retention_days
  tags              = var.tags
}

resource "aws_eip" "this" {
  count = var.public ? 1 : 0

  domain = "vpc"
  tags   = merge(var.tags, { Name = "${var.name}-master" })
}

resource "aws_instance" "this" {
  ami                    = var.image_id == null ? data.aws_ssm_parameter.ubuntu[0].insecure_value : var.image_id
  instance_type          = var.instance_type
  key_name               = var.keypair
  subnet_id              = var.subnet_id
  vpc_security_group_ids = [var.security_group_id]
  iam_instance_profile   = var.instance_profile
  user_data              = local.user_data

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 2
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = var.disk_size
    encrypted   = true
    tags        = merge(var.tags, { Name = "${var.name}-master" })
  }

  tags = merge(var.tags, { Name = "${var.name}-master" })

  # The machine boots after these exist: the database takes minutes, and an earlier machine would find nothing to install.
  depends_on = [aws_s3_object.desired]

  lifecycle {
    # A newer image applies to the next machine. It does not replace this one.
    ignore_changes = [ami]
  }
}

resource "aws_eip_association" "this" {
  count = var.public ? 1 : 0

  instance_id   = aws_instance.this.id
  allocation_id = aws_eip.this[0].id
}

locals {
  addresses = compact([var.public ? aws_eip.this[0].public_ip : null])

  user_data = join("\n", [
    "#!/bin/bash",
    "CLOUD='aws'",
    "BUCKET='${var.bucket}'",
    "PIP_OPTIONS='${var.pip_options}'",
    "PACKAGES='boto3>=1.35'",
    "FETCH='${file("${path.module}/fetch.py")}'",
    "export AWS_DEFAULT_REGION='${var.region}'",
    var.endpoint_url == null ? "" : "export AWS_ENDPOINT_URL='${var.endpoint_url}'",
    file("${path.module}/../../../shared/boot.sh"),
  ])
}
