# Start, watch and end processes of the cluster. Sourced by scripts/cluster.
# shellcheck shell=bash
#
# The whole node runs in one set of mount, network, pid and ipc namespaces. Their first process only waits. When it ends, the
# kernel ends all other processes and removes their mounts, interfaces, rules and sockets.

start_time() { # PID: print its start time; print nothing for an ended process, also if it is a zombie
  sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'
}
remember() { mkdir -p "$STATE/pids" && echo "$2 $(start_time "$2")" >"$STATE/pids/$1"; } # NAME PID
pid_of() { # NAME: print its pid if the same process still runs (a reused pid has another start time)
  local pid started
  read -r pid started 2>/dev/null <"$STATE/pids/$1" || return 1
  [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ] && echo "$pid"
}
child_of() { pgrep -P "$1" | head -1; }
end_process() { # NAME: send TERM, and KILL after some seconds
  local pid tries=0
  pid=$(pid_of "$1") || return 0
  kill -TERM "$pid" 2>/dev/null || true
  while pid_of "$1" >/dev/null; do
    [ $((tries += 1)) -lt 100 ] || kill -KILL "$pid" 2>/dev/null || true
    sleep 0.05
  done
}

in_node() { nsenter --target "$(pid_of node)" --mount --net --pid --ipc --wd=/ -- "$@"; }

make_cgroups() { # create the cluster's own cgroup, outside the terminal's; pods are next to `system`
  local folder
  for folder in $(cgroup_folders); do
    mkdir -p "$folder/system"
    if [ -e "$folder/cpuset.cpus" ] && [ -e "$folder/tasks" ]; then copy_cpuset "$folder"; fi
    if [ -e "$folder/cgroup.subtree_control" ]; then pass_controllers "$folder"; fi
  done
}
pass_controllers() { # cgroup v2: a child has only the controllers that its parent enables
  local controller
  for controller in cpuset cpu io memory hugetlb pids; do
    echo "+$controller" >"$1/../cgroup.subtree_control" && echo "+$controller" >"$1/cgroup.subtree_control"
  done 2>/dev/null || true
}
join_cgroup() { # move the calling process into the cluster's cgroup
  local folder
  for folder in $(cgroup_folders); do echo "$BASHPID" >"$folder/system/cgroup.procs" 2>/dev/null || true; done
}
cgroup_folders() { # print the cluster's folders: one with cgroup v2, one for each controller with v1
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo "/sys/fs/cgroup/$CGROUP"; return; fi
  local procs
  for procs in /sys/fs/cgroup/*/cgroup.procs; do
    [ -L "${procs%/*}" ] || echo "${procs%/*}/$CGROUP"
  done
}
copy_cpuset() { # a new cpuset of cgroup v1 is empty and accepts no process
  local file
  for file in cpuset.cpus cpuset.mems; do
    [ -s "$1/$file" ] && [ -n "$(cat "$1/$file")" ] || cat "$1/../$file" >"$1/$file"
    [ -n "$(cat "$1/system/$file")" ] || cat "$1/$file" >"$1/system/$file"
  done
}

start_on_host() { # NAME COMMAND...
  local name=$1
  shift
  (join_cgroup; exec setsid "$@" >>"$LOGS/$name.log" 2>&1 </dev/null 9>&-) &
  remember "$name" $!
  disown $!
}
start_in_node() { # NAME COMMAND...
  local name=$1
  shift
  start_on_host "$name" nsenter --target "$(pid_of node)" --mount --net --pid --ipc --wd=/ -- "$@"
}

wait_for() { # SECONDS COMPONENT LABEL COMMAND...: wait until COMMAND succeeds; fail at once if COMPONENT ends
  local deadline=$(($(now_ms) + $1 * 1000)) component=$2 label=$3
  shift 3
  until "$@" >/dev/null 2>&1; do
    [ "$component" = - ] || pid_of "$component" >/dev/null || component_failed "$component" "$component ended while waiting for: $label"
    [ "$(now_ms)" -lt "$deadline" ] || component_failed "$component" "timeout while waiting for: $label"
    sleep 0.1
  done
}
component_failed() { # COMPONENT MESSAGE
  printf 'error: %s\n' "$2" >&2
  if [ -s "$LOGS/$1.log" ]; then
    printf '  the last lines of %s.log:\n' "$1" >&2
    tail -15 "$LOGS/$1.log" | cut -c1-400 | sed 's/^/    /' >&2
  fi
  exit 1
}
