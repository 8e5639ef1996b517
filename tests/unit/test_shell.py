"""Commands in messages: whatever a name contains, a shell hands it to the program as the one argument that it is."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbridge.models.catalogue import Code
from kraftbridge.outside.shell import command, commands, filled, marked, option
from kraftbridge.outside.visible import visible

PACKAGE = Path(__file__).resolve().parents[2] / "operator/kraftbridge"
HOSTILE = (
    "", " ", "a b", "it's", 'say "x"', "$(touch owned)", "`touch owned`", "$HOME", "a;b", "a&&b", "a|b", ">x", "*", "?", "~",
    "-rf", "--delete", "--", "-", "line\nend", "\n", "\t", "\\", "\\'", "'", "''", '"', "!x", "#x", "{topic}", "{}", "%s", "a=b", "ä€", "\x1b[2J",
)  # fmt: skip
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0", codec="utf-8")))


def through_a_shell(line: str) -> list[str]:
    """Return the arguments that the program of a command gets from a real shell."""
    program = 'printf "%s\\0" "$@"'
    script = f"show() {{ {program}; }}; show {line}"
    done = subprocess.run(["/bin/sh", "-c", script], check=True, capture_output=True, timeout=30)
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_real_shell_hands_the_name_on_as_it_is(name: str, tmp_path: Path) -> None:
    line = command("--entity-name={name} --add-config={key}=1 then {path}", name=name, key=name, path=f"/config/{name}")
    assert through_a_shell(line) == [f"--entity-name={name}", f"--add-config={name}=1", "then", f"/config/{name}"]
    assert not (tmp_path / "owned").exists()


@given(name=NAMES, other=NAMES)
def test_every_name_is_one_argument(name: str, other: str) -> None:
    line = command("kafka-topics --topic={name} --config={other}", name=name, other=other)
    assert through_a_shell(line) == ["kafka-topics", f"--topic={name}", f"--config={other}"]
    assert all(character == "\n" or character.isprintable() for character in line), "a terminal obeys some of it"


@given(names=st.lists(NAMES, min_size=1, max_size=4))
def test_a_list_is_as_many_arguments_and_none_of_them_an_option(names: list[str]) -> None:
    words = through_a_shell(command("kubectl delete pod {names} -n {namespace}", names=names, namespace="kafka"))
    if any(name.startswith("-") for name in names):
        assert words == ["kubectl", "delete", "pod", "-n", "kafka", "--", *names]
    else:
        assert words == ["kubectl", "delete", "pod", *names, "-n", "kafka"]


def test_a_name_that_begins_like_an_option_stands_behind_two_dashes() -> None:
    assert command("kubectl delete pod {pod}", pod="-A") == "kubectl delete pod -- -A"
    assert command("kubectl delete pod {pod}", pod="kafka-0") == "kubectl delete pod kafka-0"
    assert command("accept {code} {object} -n {at}", code="X", object="-o", at="y") == "accept X -n y -- -o"
    assert command("accept {code} {object}", code="-X", object="o") == "accept -- -X o"


def test_an_option_of_ours_stays_where_it_stands_and_its_value_is_quoted() -> None:
    line = command("x --alter {entity} --to={to}", entity=option("entity-name", "-a b"), to="y")
    assert line == "x --alter --entity-name='-a b' --to=y"
    assert command("x {entity}", entity=option("entity-default")) == "x --entity-default"
    assert (
        command("x {entity}", entity=[option("user", "a'b"), option("client", "")])
        == """x --user='a'"'"'b' --client=''"""
    )


def test_prose_is_filled_in_as_it_is_and_the_last_command_needs_no_marks() -> None:
    text = "Delete {what}: `x --name={name}`, then `y --name={name}`"
    assert filled(text, what="a b", name="a b") == "Delete a b: `x --name='a b'`, then y --name='a b'"
    assert commands(text, what="a b", name="a b") == ["x --name='a b'", "y --name='a b'"]
    with pytest.raises(KeyError):
        filled(text, what="a b")


@given(name=NAMES)
def test_a_name_in_prose_makes_no_command(name: str) -> None:
    """A backquote in a name neither begins a command nor ends one."""
    text = "Delete {name}: `x --name={name}`"
    assert filled(text, name=name) == f"Delete {visible(name)}: {command('x --name={name}', name=name)}"
    assert through_a_shell(commands(text, name=name)[0])[1:] == [f"--name={name}"]


# ------------------------------------------------------------------------------------------------ the whole package


def test_one_module_quotes_for_shells() -> None:
    quoters = [
        p for p in sorted(PACKAGE.rglob("*.py")) if re.search(r"shlex\.(quote|join)|from shlex|pipes", p.read_text())
    ]
    assert [path.relative_to(PACKAGE).as_posix() for path in quoters] == ["outside/shell.py"]


PROGRAMS = (
    "kubectl ",
    "kafka-configs",
    "kafka-topics",
    "kafka-acls",
    "kafka-reassign",
    "kafka-leader",
    "zookeeper-s",
    "helm ",
    "python -m ",
)


def test_no_message_puts_a_name_into_a_command_by_itself() -> None:
    """An f-string that holds a command holds no placeholder behind it: `command` and `filled` fill them in."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        if not any(program in source for program in PROGRAMS):
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.JoinedStr):
                continue
            text = "".join(v.value if isinstance(v, ast.Constant) else "\0" for v in node.values)
            begins = [text.find(program) for program in PROGRAMS if program in text]
            if begins and "\0" in text[min(begins) :]:
                found.append(f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}")
    assert found == []


WRITTEN_OUT = re.compile(
    r"(kubectl|kafka-[a-z-]+|zookeeper-[a-z-]+|helm|python -m [\w.]+)(\.sh)? (-|get|set|delete|logs|describe)"
)


@pytest.mark.parametrize("code", Code)
def test_commands_of_the_catalogue_are_marked_and_take_names_behind_an_equals_sign(code: Code) -> None:
    for text in (code.meaning, code.fix):
        assert text.count("`") % 2 == 0
        for part, is_command in marked(text):
            if not is_command:
                assert not WRITTEN_OUT.search(part), part
                continue
            words = part.split()
            for before, word in itertools.pairwise(words):
                assert not (
                    before.startswith("--") and "=" not in before and word.startswith("{") and word != "{entity}"
                ), part
            if words[0].startswith("kafka-"):
                assert "--bootstrap-server HOST:PORT" in part or "--bootstrap-controller HOST:PORT" in part, part
