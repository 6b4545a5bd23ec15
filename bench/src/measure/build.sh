# Builds the network of `lab.rs`; $c, $r and $s are the names of its namespaces.
set -e
for n in $c $r $s; do ip netns add $n; ip -n $n link set lo up; done
join() { ip link add $2 netns $1 type veth peer name $5 netns $4
  ip -n $1 addr add $3 dev $2; ip -n $4 addr add $6 dev $5
  ip -n $1 link set $2 up; ip -n $4 link set $5 up; }
join $c right 10.98.1.1/24 $r left 10.98.1.2/24
join $r right 10.98.2.1/24 $s left 10.98.2.2/24
join $c plain 10.98.3.1/24 $s plain 10.98.3.2/24
for x in $c/right $r/left $r/right $s/left; do
  ip netns exec ${x%/*} ethtool -K ${x#*/} tso off gso off gro off > /dev/null; done
ip netns exec $r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
ip -n $c route add 10.98.2.0/24 via 10.98.1.2
ip -n $s route add 10.98.1.0/24 via 10.98.2.1
ip netns exec $r tc qdisc add dev right root tbf rate 20mbit burst 5kb limit 250000
