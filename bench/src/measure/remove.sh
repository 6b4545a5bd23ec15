# Waits until standard input is closed, for any reason, and then removes all namespaces.
trap '' INT TERM HUP; read -r _
for n in $c $r $s; do
  for p in $(ip netns pids $n 2> /dev/null); do kill -9 $p; done
  ip netns del $n 2> /dev/null; done
