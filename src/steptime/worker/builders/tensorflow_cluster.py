"""What every process must settle before it meets other TensorFlow processes."""

import os

_NOT_BY_PROXY = "no_grpc_proxy"  # gRPC knows it in small letters only


def call_directly(addresses):
    """Keep gRPC from looking for the other processes behind the proxy that the user has for the world outside."""
    hosts = {address.rsplit(":", 1)[0] for address in addresses}
    known = os.environ.get(_NOT_BY_PROXY) or os.environ.get("no_proxy") or ""
    os.environ[_NOT_BY_PROXY] = ",".join([known] * bool(known) + sorted(hosts))
