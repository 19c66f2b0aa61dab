"""Trains on two workers of this machine and alone, and prints the three outcomes as JSON."""

import json
import os
import socket
import subprocess
import sys


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start(config):
    env = {**os.environ, **({"TF_CONFIG": json.dumps(config)} if config else {})}
    return subprocess.Popen(
        [sys.executable, "-m", __spec__.name, "work"], env=env, stdout=subprocess.PIPE, text=True
    )


def work():
    import tfdp
    from tests.training.distributed_case import noise, train

    strategy = tfdp.choose_strategy("auto")
    quiet = train(strategy)
    noisy = train(strategy, noise=1.0)
    secure = noise(strategy, secure=True)
    print(json.dumps({"weights": quiet["weights"], "noisy": noisy["weights"], "secure": secure}))


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        work()
    else:
        addresses = [f"localhost:{port}" for port in free_ports(2)]
        tasks = [{"type": "worker", "index": index} for index in range(2)]
        workers = [start({"cluster": {"worker": addresses}, "task": task}) for task in tasks]
        for child in [*workers, start(None)]:
            out, _ = child.communicate()
            if child.returncode:
                sys.exit(f"a worker ended with {child.returncode}")
            print(out.strip().splitlines()[-1])
