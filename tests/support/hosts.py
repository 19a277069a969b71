"""Hosts in network namespaces, and a cluster on them: see `artangram_bench.hosts`."""

from artangram_bench.hostcluster import TOKEN, HostCluster
from artangram_bench.hosts import CAN_MAKE_HOSTS, WHY_NOT, Host, some_hosts

__all__ = ["CAN_MAKE_HOSTS", "TOKEN", "WHY_NOT", "Host", "HostCluster", "some_hosts"]
