# SPDX-License-Identifier: MIT
"""A test runs in Bazel's sandbox: loopback is there, and nothing else of the network."""

import pathlib
import socket

import pytest


@pytest.fixture(autouse=True)
def sandboxed():
    # Only Linux's own sandbox makes a network namespace; Bazel falls back where it cannot.
    if "linux-sandbox" not in str(pathlib.Path.cwd()):
        pytest.skip(f"this test action runs without linux-sandbox, in {pathlib.Path.cwd()}")


def test_the_only_interface_is_loopback():
    assert [name for _, name in socket.if_nameindex()] == ["lo"]


def test_there_is_no_route():
    assert len(pathlib.Path("/proc/net/route").read_text().splitlines()) <= 1  # the heading


def test_loopback_works():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname(), timeout=10) as client:
            peer, _ = server.accept()
            with peer:
                client.sendall(b"x")
                assert peer.recv(1) == b"x"
