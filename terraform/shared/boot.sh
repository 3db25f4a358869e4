# Brings the cluster's wheel onto this machine and hands over to it. Runs at every boot; what is there already is left alone.
# The lines before this file set CLOUD, BUCKET, PACKAGES (what pip installs to speak to the cloud), FETCH (a Python function that reads
# an object of the bucket) and PIP_OPTIONS.
set -uo pipefail
export HOME=/root DEBIAN_FRONTEND=noninteractive
DIR=/var/lib/resolute-deploy
mkdir -p "$DIR"
exec >>"$DIR/boot.log" 2>&1

stage() { # name, command...: tried for a quarter of an hour, in which new rights come into force; its seconds are in boot.stages
  local name=$1 started=$SECONDS
  shift
  for pause in 2 10 30 60 120 180 240 240 0; do
    if "$@"; then
      echo "$name $((SECONDS - started))" >>"$DIR/boot.stages"
      return
    fi
    sleep "$pause"
  done
  echo "resolute: the stage $name failed" | tee /dev/console
  exit 1
}

packages() { python3 -c 'import ensurepip' 2>/dev/null || { apt-get update -q && apt-get install -q -y python3-venv; }; }

python() {
  [ -x "$DIR/venv/bin/python" ] || python3 -m venv "$DIR/venv" || return
  [ -e "$DIR/venv/complete" ] || "$DIR/venv/bin/pip" install -q $PIP_OPTIONS $PACKAGES || return
  touch "$DIR/venv/complete"
}

wheel() {
  { echo "$FETCH" && cat; } <<'PYTHON' | "$DIR/venv/bin/python" - "$BUCKET" "$DIR"
import hashlib, json, pathlib, subprocess, sys

bucket, directory = sys.argv[1], pathlib.Path(sys.argv[2])
desired = json.loads(fetch(bucket, "cluster/desired.json"))
file = directory / pathlib.PurePosixPath(desired["wheel"]).name
content = fetch(bucket, desired["wheel"])
if hashlib.sha256(content).hexdigest() != desired["wheel_sha256"]:
    sys.exit(f"{desired['wheel']} is not the wheel that was uploaded")
file.write_bytes(content)
pip = [sys.executable, "-m", "pip", "install", "-q", *desired["pip_options"].split(), "--force-reinstall", "--no-deps", str(file)]
sys.exit(subprocess.call(pip))
PYTHON
}

stage packages packages
stage python python
[ -e "$DIR/handed-over" ] || stage wheel wheel
touch "$DIR/handed-over"
exec "$DIR/venv/bin/python" -m resolute_deploy.machine --cloud "$CLOUD" --bucket "$BUCKET" --directory "$DIR"
