# One bucket: checkpoints/ is of the tasks, cluster/ of the master's machine.

resource "aws_s3_bucket" "this" {
  bucket = var.name
  tags   = var.tags
}

resource "aws_s3_bucket_public_access_block" "this" {
  bucket                  = aws_s3_bucket.this.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_versioning" "this" {
  bucket = aws_s3_bucket.this.id

  versioning_configuration {
    status = var.versioning ? "Enabled" : "Suspended"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  count  = var.lifecycle_rules || var.expiry_days > 0 ? 1 : 0
  bucket = aws_s3_bucket.this.id

  # Parts of uploads whose machine was lost are paid for until they are removed.
  dynamic "rule" {
    for_each = var.lifecycle_rules ? [3] : []

    content {
      id     = "unfinished"
      status = "Enabled"

      filter {}

      abort_incomplete_multipart_upload {
        days_after_initiation = rule.value
      }

      noncurrent_version_expiration {
        noncurrent_days = 30
      }
    }
  }

  dynamic "rule" {
    for_each = var.expiry_days > 0 ? [var.expiry_days] : []

    content {
      id     = "checkpoints"
      status = "Enabled"

      filter {
        prefix = "checkpoints/"
      }

      expiration {
        days = rule.value
      }
    }
  }

  depends_on = [aws_s3_bucket_versioning.this]
}

data "aws_iam_policy_document" "encrypted_connections" {
  statement {
    sid       = "EncryptedConnectionsOnly"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.this.arn, "${aws_s3_bucket.this.arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  count  = var.tls_only ? 1 : 0
  bucket = aws_s3_bucket.this.id
  policy = data.aws_iam_policy_document.encrypted_connections.json

  depends_on = [aws_s3_bucket_public_access_block.this]
}
