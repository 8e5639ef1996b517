"""Count the client sessions that a ZooKeeper server has, by its four-letter word ``cons``."""

import argparse
import json
import socket


def four_letter_word(host: str, port: int, word: str) -> str:
    """Return a ZooKeeper server's answer to an administration command."""
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(word.encode())
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    return answer.decode()


def sessions(host: str, port: int) -> list[str]:
    """Return one line per session; the connection that asks has none itself."""
    answer = four_letter_word(host, port, "cons")
    if "not executed" in answer:
        raise PermissionError(f"{host}: cons is not in 4lw.commands.whitelist")
    return [line.strip() for line in answer.splitlines() if "sid=0x" in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("--port", type=int, default=2181)
    arguments = parser.parse_args()
    print(json.dumps(sessions(arguments.host, arguments.port)))


if __name__ == "__main__":
    main()
