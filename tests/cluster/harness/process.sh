# Starting, watching and ending processes of the cluster. Sourced by scripts/cluster.
# shellcheck shell=bash
#
# The whole node lives in one set of mount, network, pid and ipc namespaces, whose first process only waits. When that one
# process ends, the kernel ends all others and drops the mounts, interfaces, rules and sockets that they made.

start_time() { # PID: nothing for one that has ended, even if nobody has collected it yet
  sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'
}
remember() { mkdir -p "$STATE/pids" && echo "$2 $(start_time "$2")" >"$STATE/pids/$1"; } # NAME PID
pid_of() { # NAME: its pid if that very process still runs (a recycled pid has another start time)
  local pid started
  read -r pid started 2>/dev/null <"$STATE/pids/$1" || return 1
  [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ] && echo "$pid"
}
child_of() { pgrep -P "$1" | head -1; }
end_process() { # NAME: TERM, and KILL after some seconds
  local pid tries=0
  pid=$(pid_of "$1") || return 0
  kill -TERM "$pid" 2>/dev/null || true
  while pid_of "$1" >/dev/null; do
    [ $((tries += 1)) -lt 100 ] || kill -KILL "$pid" 2>/dev/null || true
    sleep 0.05
  done
}

in_node() { nsenter --target "$(pid_of node)" --mount --net --pid --ipc --wd=/ -- "$@"; }

make_cgroups() { # the cluster's own, out of the terminal's; pods go beside `system`
  local folder
  for folder in $(cgroup_folders); do
    mkdir -p "$folder/system"
    if [ -e "$folder/cpuset.cpus" ] && [ -e "$folder/tasks" ]; then copy_cpuset "$folder"; fi
    if [ -e "$folder/cgroup.subtree_control" ]; then pass_controllers "$folder"; fi
  done
}
pass_controllers() { # cgroup v2: a child has only the controllers that its parent passes on
  local controller
  for controller in cpuset cpu io memory hugetlb pids; do
    echo "+$controller" >"$1/../cgroup.subtree_control" && echo "+$controller" >"$1/cgroup.subtree_control"
  done 2>/dev/null || true
}
join_cgroup() { # puts the calling process there
  local folder
  for folder in $(cgroup_folders); do echo "$BASHPID" >"$folder/system/cgroup.procs" 2>/dev/null || true; done
}
cgroup_folders() { # the cluster's folder in every hierarchy: one with cgroup v2, one for each controller with v1
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo "/sys/fs/cgroup/$CGROUP"; return; fi
  local procs
  for procs in /sys/fs/cgroup/*/cgroup.procs; do
    [ -L "${procs%/*}" ] || echo "${procs%/*}/$CGROUP"
  done
}
copy_cpuset() { # a new cpuset of cgroup v1 is empty and takes no process
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

wait_for() { # SECONDS COMPONENT WHAT COMMAND...: until COMMAND succeeds; at once fatal when COMPONENT ends
  local deadline=$(($(now_ms) + $1 * 1000)) component=$2 what=$3
  shift 3
  until "$@" >/dev/null 2>&1; do
    [ "$component" = - ] || pid_of "$component" >/dev/null || component_failed "$component" "$component ended while waiting for: $what"
    [ "$(now_ms)" -lt "$deadline" ] || component_failed "$component" "gave up waiting for: $what"
    sleep 0.1
  done
}
component_failed() { # COMPONENT MESSAGE
  printf 'error: %s\n' "$2" >&2
  if [ -s "$LOGS/$1.log" ]; then
    printf '  the end of %s.log:\n' "$1" >&2
    tail -15 "$LOGS/$1.log" | cut -c1-400 | sed 's/^/    /' >&2
  fi
  exit 1
}
