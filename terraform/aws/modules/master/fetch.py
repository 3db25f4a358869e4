import boto3


def fetch(bucket, key):
    return boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
