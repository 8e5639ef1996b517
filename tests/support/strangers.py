"""Processes without credentials that ask Spark's drivers and executors for what they hold, and look for whoever answers."""

from __future__ import annotations

from typing import Final

KUBERNETES: Final = "k8s://http://127.0.0.1:1"
"""A secret comes from a file only with a master of this kind (``SecurityManager``). No API server listens here, and so no executor ever starts."""
QUIET: Final = (
    "spark.kubernetes.executor.enableApiWatcher=false",
    "spark.kubernetes.executor.enableApiPolling=false",
    "spark.kubernetes.container.image=none",
    "spark.kubernetes.executor.disableConfigMap=true",
)

STRANGER: Final = """
import sys
from pyspark import SparkConf, SparkContext
addresses, master, *options = sys.argv[1:]
conf = SparkConf().setMaster(master)
for each in (*options, "spark.ui.enabled=false", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"):
    conf.set(*each.split("=", 1))
jvm = SparkContext(conf=conf)._jvm
env = jvm.org.apache.spark.SparkEnv.get()
def module(name):
    found = jvm.java.lang.Class.forName(name)
    return getattr(found, "getField")("MODULE$").get(None)
def endpoint(name, host, port):
    to = jvm.org.apache.spark.SparkConf()
    to.set("spark.driver.host", host)
    to.set("spark.driver.port", port)
    to.set("spark.rpc.lookupTimeout", "12s")
    return jvm.org.apache.spark.util.RpcUtils.makeDriverRef(name, to, env.rpcEnv())
def managers(host, port):
    message = module("org.apache.spark.storage.BlockManagerMessages$GetMemoryStatus$")
    answer = endpoint("BlockManagerMaster", host, port).askSync(message, module("scala.reflect.ClassTag$").Any())
    return answer.keys().head().toString()
def block(host, port):
    # The first thing that a driver keeps: the program of its first job.
    found = env.blockManager().blockTransferService().fetchBlockSync(host, int(port), "driver", "broadcast_0_piece0", None)
    return f"{found.size()} bytes of a block"
QUESTIONS = {
    "block managers": managers,
    "scheduler": lambda host, port: endpoint("CoarseGrainedScheduler", host, port).toString(),
    "block": block,
}
for address in addresses.split(","):
    host, _, port = address.rpartition(":")
    for what, question in QUESTIONS.items():
        try:
            print(f"ANSWERED {what} at {address}: {question(host, port)}", flush=True)
        except Exception as e:
            print(f"refused {what} at {address}: {str(e)[:300]}", flush=True)
print("ASKED", flush=True)
"""
"""As the review's attack: ask the block manager's master for its managers, the scheduler for its tasks, and each port for a block."""

SCAN: Final = """
import asyncio, json, sys
host, seconds = sys.argv[1], float(sys.argv[2])
async def opens(port, few):
    async with few:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), seconds)
        except (OSError, asyncio.TimeoutError):
            return None
        writer.close()
        return port
async def main():
    few = asyncio.Semaphore(800)
    found = await asyncio.gather(*(opens(port, few) for port in range(1, 65536)))
    print("OPEN", json.dumps([port for port in found if port]))
asyncio.run(main())
"""
"""Connects to every port of a host."""

TALK: Final = """
import json, socket, sys
WORDS = {
    "nothing": b"",
    "HTTP": b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n",
    "py4j": b"c\\nt\\ngetClass\\ne\\n",
    "py4j's reflection": b"r\\nu\\njava.lang.Runtime\\nrj\\ne\\n",
    "a Java object": b"\\xac\\xed\\x00\\x05sr\\x00\\x0ejava.lang.Long",
    "a pickle": b"\\x80\\x04K\\x01.",
}
found = {}
host = sys.argv[1]
for port in map(int, sys.argv[2:]):
    for name, words in WORDS.items():
        answer = b""
        try:
            with socket.create_connection((host, port), 5) as connection:
                connection.settimeout(3)
                connection.sendall(words)
                answer = connection.recv(4096)
        except OSError:
            pass
        found[f"{name} at {port}"] = answer.decode("latin-1")
print("TOLD", json.dumps(found))
"""
"""Says a word of several protocols at each port; tells what was answered."""
