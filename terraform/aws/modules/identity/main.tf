# What the master and the agents may do. The master launches machines with the cluster's tag only, and ends no others; agents see their
# bucket's checkpoints and nothing else.

locals {
  ec2 = "arn:${var.partition}:ec2:${var.region}"
}

data "aws_iam_policy_document" "machines" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

# ------------------------------------------------------------------------------------------------------------------- agents

resource "aws_iam_role" "agent" {
  name               = "${var.name}-agent-${var.region}"
  assume_role_policy = data.aws_iam_policy_document.machines.json
  tags               = var.tags
}

resource "aws_iam_instance_profile" "agent" {
  name = "${var.name}-agent-${var.region}"
  role = aws_iam_role.agent.name
  tags = var.tags
}

data "aws_iam_policy_document" "checkpoints" {
  statement {
    sid       = "ListCheckpoints"
    actions   = ["s3:ListBucket", "s3:ListBucketMultipartUploads"]
    resources = [var.bucket_arn]

    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = ["checkpoints", "checkpoints/*"]
    }
  }

  statement {
    sid       = "FindBucket"
    actions   = ["s3:GetBucketLocation"]
    resources = [var.bucket_arn]
  }

  statement {
    sid       = "KeepCheckpoints"
    actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
    resources = ["${var.bucket_arn}/checkpoints/*"]
  }
}

resource "aws_iam_role_policy" "agent" {
  name   = "checkpoints"
  role   = aws_iam_role.agent.id
  policy = data.aws_iam_policy_document.checkpoints.json
}

# ------------------------------------------------------------------------------------------------------------------- master

resource "aws_iam_role" "master" {
  name               = "${var.name}-master-${var.region}"
  assume_role_policy = data.aws_iam_policy_document.machines.json
  tags               = var.tags
}

resource "aws_iam_instance_profile" "master" {
  name = "${var.name}-master-${var.region}"
  role = aws_iam_role.master.name
  tags = var.tags
}

data "aws_iam_policy_document" "master" {
  # EC2 and Service Quotas have no rights to read that could be bound to a resource.
  statement {
    sid = "Look"
    actions = [
      "ec2:DescribeAvailabilityZones",
      "ec2:DescribeImages",
      "ec2:DescribeInstanceStatus",
      "ec2:DescribeInstanceTypeOfferings",
      "ec2:DescribeInstanceTypes",
      "ec2:DescribeInstances",
      "ec2:DescribeSpotInstanceRequests",
      "ec2:DescribeSpotPriceHistory",
      "ec2:DescribeSubnets",
      "servicequotas:GetServiceQuota",
    ]
    resources = ["*"]
  }

  statement {
    sid       = "FindImages"
    actions   = ["ssm:GetParameters", "ssm:GetParameter"]
    resources = ["arn:${var.partition}:ssm:${var.region}::parameter/aws/service/*"]
  }

  # A machine, its disks, its interfaces and its spot request are launched with the cluster's tag or not at all.
  statement {
    sid     = "LaunchTagged"
    actions = ["ec2:RunInstances"]
    resources = [
      "${local.ec2}:${var.account}:instance/*",
      "${local.ec2}:${var.account}:volume/*",
      "${local.ec2}:${var.account}:spot-instances-request/*",
    ]

    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/${var.agent_tag.key}"
      values   = [var.agent_tag.value]
    }
  }

  statement {
    sid     = "LaunchFrom"
    actions = ["ec2:RunInstances"]
    resources = [
      "${local.ec2}::image/*",
      "${local.ec2}:${var.account}:key-pair/*",
      "${local.ec2}:${var.account}:network-interface/*",
      "${local.ec2}:${var.account}:security-group/*",
      "${local.ec2}:${var.account}:subnet/*",
      "${local.ec2}:${var.account}:capacity-reservation/*",
    ]
  }

  statement {
    sid       = "TagAtLaunch"
    actions   = ["ec2:CreateTags"]
    resources = ["${local.ec2}:${var.account}:*/*"]

    condition {
      test     = "StringEquals"
      variable = "ec2:CreateAction"
      values   = ["RunInstances"]
    }
  }

  statement {
    sid       = "EndTagged"
    actions   = ["ec2:TerminateInstances", "ec2:CancelSpotInstanceRequests"]
    resources = ["${local.ec2}:${var.account}:*/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/${var.agent_tag.key}"
      values   = [var.agent_tag.value]
    }
  }

  statement {
    sid       = "GiveAgentsTheirRole"
    actions   = ["iam:PassRole"]
    resources = [aws_iam_role.agent.arn]
  }

  statement {
    sid       = "ReadSecrets"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = var.secret_arns
  }

  statement {
    sid       = "WriteSecrets"
    actions   = ["secretsmanager:PutSecretValue"]
    resources = var.written_arns
  }

  statement {
    sid       = "List"
    actions   = ["s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:GetBucketLocation"]
    resources = [var.bucket_arn]
  }

  statement {
    sid       = "Keep"
    actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
    resources = ["${var.bucket_arn}/checkpoints/*", "${var.bucket_arn}/cluster/*"]
  }

  dynamic "statement" {
    for_each = var.log_group == null ? [] : [var.log_group]

    content {
      sid       = "Log"
      actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      resources = ["arn:${var.partition}:logs:${var.region}:${var.account}:log-group:${statement.value}:*"]
    }
  }
}

resource "aws_iam_role_policy" "master" {
  name   = "cluster"
  role   = aws_iam_role.master.id
  policy = data.aws_iam_policy_document.master.json
}

# Session Manager: a shell and a forwarded port without a way in from the internet.
resource "aws_iam_role_policy_attachment" "session_manager" {
  role       = aws_iam_role.master.name
  policy_arn = "arn:${var.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}
