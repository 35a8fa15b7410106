"""Exit with 0 if the kernel has nf_tables, else with 1. This runs before `nft` is installed."""

from __future__ import annotations

import socket
import struct
import sys

NETLINK_NETFILTER = 12  # linux/netlink.h
NLM_F_REQUEST = 1
NLMSG_ERROR = 2
NFNL_SUBSYS_NFTABLES = 10  # linux/netfilter/nfnetlink.h
NFT_MSG_GETGEN = 16  # linux/netfilter/nf_tables.h: get the number of the current ruleset


def has_nf_tables() -> bool:
    """Request the generation of nf_tables; the kernel loads the module for this request if it has it."""
    message_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN
    request = struct.pack("=IHHII", 20, message_type, NLM_F_REQUEST, 0, 0) + struct.pack(">BBH", 0, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
            netlink.settimeout(10)
            netlink.send(request)
            answer = netlink.recv(4096)
    except OSError:
        return False
    (answer_type,) = struct.unpack_from("=H", answer, 4)
    return bool(answer_type != NLMSG_ERROR)


sys.exit(not has_nf_tables())
