#!/bin/bash
# Starts a machine of a Resolute cluster. The join token in it works once.
MASTER=https://master.example:8443
INSTANCE=gpus-1-abc
WHEEL=resolute_ml-1.0-py3-none-any.whl
WHEEL_SHA256=0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f
IMAGE=registry.example/agent:1
BOOT_TIMEOUT_S=1200
SILENCE_LIMIT_S=360
write_files() {
put agent.yaml <<'END'
{
 "agent_id": "gpus-1-abc",
 "artificial_slots": 0,
 "container_runtime": "docker",
 "debug": true,
 "instance_id": "gpus-1-abc",
 "join_token": "a-join-token-that-nobody-may-see",
 "master_host": "master.example",
 "master_port": 8443,
 "master_timeout": 300.0,
 "notice_source": "gce",
 "resource_pool": "gpus",
 "security": {
  "tls": {
   "enabled": true,
   "master_cert": "/var/lib/resolute/master.pem"
  }
 },
 "slot_type": "cuda",
 "state_dir": "/var/lib/resolute/agent"
}
END
put authorization <<'END'
X-Resolute-Join-Token: a-join-token-that-nobody-may-see
END
put master.pem <<'END'
-----BEGIN CERTIFICATE-----

END
put startup <<'END'
#!/bin/sh
mount /data

END
put container-startup <<'END'
echo ready

END
}
machine_name() {
  curl -sf --max-time 5 -H 'Metadata-Flavor: Google' http://169.254.169.254/computeMetadata/v1/instance/name
}
run_agent() { docker rm --force resolute-agent; docker run --rm --init --name resolute-agent --network host --runtime runc --gpus all --log-driver gcplogs --volume=/var/lib/resolute:/var/lib/resolute --volume=/var/run/docker.sock:/var/run/docker.sock --env=PYTHONPATH=/var/lib/resolute/package --entrypoint /bin/sh registry.example/agent:1 -c 'sh /var/lib/resolute/container-startup && exec python3 -m resolute_agent --config /var/lib/resolute/agent.yaml'; }
umask 077
export PATH="${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DIR=/var/lib/resolute
STATE="$DIR/agent"
HEARD="$STATE/heard" # touched by the agent at each answer of its master
LOG="$DIR/boot.log"
mkdir -p "$STATE"
cd "$DIR" || exit 1

uptime_s() { local up rest; read -r up rest </proc/uptime; echo "${up%%.*}"; }

put() { base64 -d | gzip -d >"$DIR/$1"; }

say() { echo "resolute: $*" | tee -a "$LOG" >&2; }

call_master() {
  if [ -s "$DIR/master.pem" ]; then set -- --cacert "$DIR/master.pem" "$@"; fi
  curl --silent --show-error --fail --max-time 60 "$@"
}

power_off() {
  say "power off: $1"
  systemctl poweroff || shutdown -h now || poweroff
  sleep 60
  exit 1
}

report() { # stage, last lines on stdin; the token is in a file, so that no list of processes shows it
  { echo "machine $(machine_name)"; tail -n 20; } >"$DIR/report"
  for pause in 1 3 9 0; do
    call_master -X POST -H "@$DIR/authorization" --data-binary "@$DIR/report" \
      "$MASTER/agents/boot/$INSTANCE?stage=$1" >/dev/null && return
    sleep "$pause"
  done
}

fail() { # stage, reason: a machine that cannot join is worth nothing
  say "$2"
  report "$1" <"$LOG"
  power_off "the boot failed ($1)"
}

watch() { # whatever happens to the agent: without its master the machine ends
  local limit=$BOOT_TIMEOUT_S last='' seen since
  since=$(uptime_s)
  while :; do
    seen=$(stat -c %Y "$HEARD" 2>/dev/null)
    if [ "$seen" != "$last" ]; then
      last=$seen since=$(uptime_s) limit=$SILENCE_LIMIT_S
    fi
    [ $(($(uptime_s) - since)) -gt "$limit" ] && power_off "no word from the master for $limit s"
    sleep 5
  done
}

keep() { # the agent runs until it says that the machine is to end
  local pause=1 failures=0 started code
  while :; do
    started=$(uptime_s)
    run_agent >>"$DIR/agent.log" 2>&1
    code=$?
    case $code in
      64) power_off "the agent says that the machine is to end" ;;
      78) tail -n 20 "$DIR/agent.log" >>"$LOG"; fail agent "the agent cannot run with its settings" ;;
    esac
    if [ $(($(uptime_s) - started)) -ge 60 ]; then pause=1 failures=0; fi
    failures=$((failures + 1))
    if [ ! -e "$HEARD" ] && [ "$failures" -ge 5 ]; then
      tail -n 20 "$DIR/agent.log" >>"$LOG"
      fail agent "the agent ended $failures times with code $code and never reached its master"
    fi
    sleep "$pause"
    pause=$((pause < 30 ? pause * 2 : 30))
  done
}

serve() { # in the background and, where systemd is, after a reboot too; tasks outlive a restart of the agent
  local units=/etc/systemd/system lasting=enable
  if [ -n "${KEEPS_DISK:-}" ]; then units=/run/systemd/system lasting='enable --runtime'; fi
  if [ -d /run/systemd/system ]; then
    printf '[Unit]\nAfter=network-online.target docker.service\n[Service]\nExecStart=/bin/bash %s %s\nRestart=always\nKillMode=process\n[Install]\nWantedBy=multi-user.target\n' \
      "$DIR/boot" "$1" >"$units/resolute-$1.service"
    systemctl $lasting --now --no-block "resolute-$1.service" >>"$LOG" 2>&1
  else
    setsid nohup /bin/bash "$DIR/boot" "$1" >>"$LOG" 2>&1 </dev/null &
  fi
}

find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11; do
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$name" && return
  done
  return 1
}

complete() { PYTHONPATH="$DIR/package" "$1" -c 'import resolute_agent.main, psutil, pydantic, yaml' >>"$LOG" 2>&1; }

install_agent() {
  call_master --retry 10 --retry-connrefused --retry-delay 2 -o "$WHEEL" "$MASTER/agents/wheels/$WHEEL" 2>>"$LOG" ||
    fail wheel "cannot fetch $WHEEL from $MASTER"
  echo "$WHEEL_SHA256  $WHEEL" | sha256sum --check --status || fail wheel "$WHEEL is not what the master has"
  rm -rf "$DIR/package"
  python3 -m zipfile -e "$WHEEL" "$DIR/package" >>"$LOG" 2>&1 || fail wheel "cannot unpack $WHEEL"
  chmod -R go+rX "$DIR/package" # tasks have accounts of their own, and import from it
  [ -n "$IMAGE" ] && return
  PYTHON=$(find_python) || fail python "no Python 3.11 or newer; take another machine image, or set agent_docker_image"
  complete "$PYTHON" && return
  if ! "$PYTHON" -m venv "$DIR/venv" >>"$LOG" 2>&1; then
    { apt-get update && apt-get install -y "$(basename "$PYTHON")-venv"; } >>"$LOG" 2>&1
    "$PYTHON" -m venv "$DIR/venv" >>"$LOG" 2>&1 || fail python "cannot make a virtual environment with $PYTHON"
  fi
  PYTHON="$DIR/venv/bin/python"
  "$PYTHON" -m pip install --quiet --require-hashes -r "$DIR/package/resolute_agent/requirements.lock" >>"$LOG" 2>&1 ||
    fail python "cannot install the agent's packages"
  chmod -R go+rX "$DIR/venv"
  complete "$PYTHON" || fail python "the agent's packages cannot be imported"
}

case "${1:-boot}" in
  watch) watch ;;
  keep) PYTHON=$(cat "$DIR/python"); keep ;;
  boot)
    [ "$(cat "$DIR/booted" 2>/dev/null)" = "$INSTANCE" ] && exit 0 # a second run of the same user data
    if [ -n "${KEEPS_DISK:-}" ] && [ "$(cat "$DIR/instance" 2>/dev/null)" != "$INSTANCE" ]; then
      find "$DIR" -mindepth 1 -delete # of the machine's last life
      mkdir -p "$STATE"
      echo "$INSTANCE" >"$DIR/instance"
    fi
    cat "$0" >"$DIR/boot"
    write_files
    serve watch
    say "machine $(machine_name) boots for $INSTANCE"
    if [ -s "$DIR/startup" ]; then
      chmod 700 "$DIR/startup"
      "$DIR/startup" >>"$LOG" 2>&1 || fail startup_script "the startup script failed"
    fi
    PYTHON=
    install_agent
    echo "$PYTHON" >"$DIR/python"
    echo "$INSTANCE" >"$DIR/booted"
    serve keep
    say "the agent is started"
    ;;
esac
