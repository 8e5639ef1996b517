"""Count the client sessions that a ZooKeeper server has, by its four-letter word ``cons``."""

import argparse
import json
import socket
import ssl


def four_letter_word(host: str, port: int, word: str, tls: str | None = None) -> str:
    """Return a ZooKeeper server's answer to an administration command; ``tls`` is a directory with certificates."""
    with connected(host, port, tls) as connection:
        connection.sendall(word.encode())
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    return answer.decode()


def connected(host: str, port: int, tls: str | None) -> socket.socket:
    plain = socket.create_connection((host, port), timeout=10)
    if tls is None:
        return plain
    context = ssl.create_default_context(cafile=f"{tls}/ca.crt")
    context.load_cert_chain(f"{tls}/tls.crt", f"{tls}/tls.key")
    return context.wrap_socket(plain, server_hostname=host)


def sessions(host: str, port: int, tls: str | None) -> list[str]:
    """Return one line per session; the connection that asks has none itself."""
    answer = four_letter_word(host, port, "cons", tls)
    if "not executed" in answer:
        raise PermissionError(f"{host}: cons is not in 4lw.commands.whitelist")
    return [line.strip() for line in answer.splitlines() if "sid=0x" in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("--port", type=int, default=2181)
    parser.add_argument("--tls", metavar="DIRECTORY", help="with ca.crt, tls.crt and tls.key: the port asks for TLS")
    arguments = parser.parse_args()
    print(json.dumps(sessions(arguments.host, arguments.port, arguments.tls)))


if __name__ == "__main__":
    main()
