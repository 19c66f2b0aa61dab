"""Trains on two workers of this machine and alone, and prints the three outcomes as JSON.

Every worker is a fork of this process, which must not use TensorFlow before.
"""

import json
import multiprocessing
import os
import socket
import sys

import tfdp
from tests.training.distributed_case import noise, train

FORKS = multiprocessing.get_context("fork")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def work(config, outcome):
    if config:
        os.environ["TF_CONFIG"] = json.dumps(config)
    strategy = tfdp.choose_strategy("auto")
    quiet = train(strategy)
    noisy = train(strategy, noise=1.0)
    secure = noise(strategy, secure=True)
    outcome.send({"weights": quiet["weights"], "noisy": noisy["weights"], "secure": secure})


def start(config):
    receiver, sender = FORKS.Pipe(duplex=False)
    worker = FORKS.Process(target=work, args=(config, sender), daemon=True)
    worker.start()
    sender.close()  # the worker has the other copy: its death ends the pipe
    return worker, receiver


if __name__ == "__main__":
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    workers = [start({"cluster": {"worker": addresses}, "task": task}) for task in tasks]
    for worker, outcome in [*workers, start(None)]:
        try:
            print(json.dumps(outcome.recv()))
        except EOFError:
            sys.exit("a worker ended without an outcome")
        worker.join()
        if worker.exitcode:
            sys.exit(f"a worker ended with {worker.exitcode}")
