from google.cloud import storage


def fetch(bucket, key):
    return storage.Client().bucket(bucket).blob(key).download_as_bytes()
