"""The pure parsers: right on the real thing, and total."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.detect.scenes import host_of
from vllm_probe.core.system import FileStat
from vllm_probe.detect.checks.runtime import DockerInfo, parse_cdi_paths, parse_docker_info, parse_no_cgroups
from vllm_probe.detect.nodes import Refusal, lxc_lines, refusal
from vllm_probe.vendors.nodes import Identity, mode_allows, parse_identity
from vllm_probe.vendors.pci import accelerators

NAME = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8)
PATH = st.lists(NAME, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
YAML = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      hostPath: /dev/char/nvidia0
    - path: /dev/nvidia1
containerEdits:
  hooks:
  - args:
    - nvidia-cdi-hook
    - --folder
    - /usr/lib
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /lib/a.so
    hostPath: "/usr/lib/a.so"
    options: [ro, bind]
"""


def test_a_cdi_specification_names_its_host_paths() -> None:
    expected = ("/dev/char/nvidia0", "/dev/nvidia1", "/usr/bin/nvidia-cdi-hook", "/usr/lib/a.so")
    assert parse_cdi_paths(YAML) == expected


@given(st.lists(st.tuples(PATH, PATH), max_size=4))
def test_a_cdi_specification_in_json_names_its_host_paths(mounts: list[tuple[str, str]]) -> None:
    edits = {"mounts": [{"hostPath": host, "containerPath": inside} for host, inside in mounts]}
    text = json.dumps({"kind": "a/b", "containerEdits": edits}, ensure_ascii=False)
    assert parse_cdi_paths(text) == tuple(dict.fromkeys(host for host, _ in mounts))


@given(st.text(alphabet=st.sampled_from("hostPath: /{}-\n\"',a ")) | st.text())
def test_any_text_as_a_cdi_specification_gives_absolute_paths_only(text: str) -> None:
    assert all(path.startswith("/") and "\n" not in path for path in parse_cdi_paths(text))


def test_a_specification_of_blank_lines_is_read_in_linear_time() -> None:
    assert parse_cdi_paths("\n" * 1_000_000 + "- hostPath: /x\n") == ("/x",)


def test_docker_info_is_read_from_its_json() -> None:
    answer = {
        "Runtimes": {"runc": {}, "nvidia": {}},
        "SecurityOptions": ["name=rootless"],
        "DockerRootDir": "/var/snap/d",
    }
    info = parse_docker_info(json.dumps(answer))
    assert info is not None
    assert info == DockerInfo(frozenset({"runc", "nvidia"}), rootless=True, root="/var/snap/d", system="")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(("Runtimes", "SecurityOptions", "DockerRootDir")), inner)
    ),
)


@given(JSON.map(json.dumps) | st.text())
def test_any_answer_of_docker_is_read_or_refused(text: str) -> None:
    info = parse_docker_info(text)
    assert info is None or all(isinstance(name, str) for name in info.runtimes)


def test_deeply_nested_json_is_refused() -> None:
    assert parse_docker_info("[" * 100_000) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("no-cgroups = true", True), ("  no-cgroups=false\n", False), ("#no-cgroups = true\n", False), ("", False)],
)
def test_no_cgroups_is_false_unless_the_toolkit_configuration_sets_it(text: str, value: object) -> None:
    assert parse_no_cgroups(text) is value


@given(st.text())
def test_any_text_as_toolkit_configuration_gives_an_answer(text: str) -> None:
    assert parse_no_cgroups(text) in {True, False}


@given(st.integers(0, 70000), st.integers(0, 70000), st.sets(st.integers(0, 70000), max_size=5))
def test_the_identity_is_the_effective_user_and_all_groups(uid: int, gid: int, groups: set[int]) -> None:
    listed = " ".join(map(str, sorted(groups)))
    status = f"Name:\tx\nUid:\t5\t{uid}\t5\t5\nGid:\t6\t{gid}\t6\t6\nGroups:\t{listed} \n"
    assert parse_identity(status) == Identity(uid, frozenset(groups | {gid}))


def test_an_absurd_number_is_no_reason_to_fail() -> None:
    assert parse_identity(f"Uid:\t1\t{'9' * 5000}\n").uid is not None


@given(st.text(alphabet="UidGroups:\t 0123456789\n") | st.text())
def test_any_status_text_gives_an_identity(text: str) -> None:
    assert isinstance(parse_identity(text).groups, frozenset)


@pytest.mark.parametrize(
    ("mode", "uid", "groups", "allowed"),
    [
        (0o660, 0, (), True),
        (0o660, 1000, (992,), True),
        (0o660, 1000, (44,), False),
        (0o606, 1000, (992,), False),
        (0o666, 1000, (), True),
        (0o600, 7, (), True),
        (0o066, 7, (992,), False),
    ],
)
def test_mode_bits_of_owner_group_and_others_decide_in_this_order(
    mode: int, uid: int, groups: tuple[int, ...], allowed: object
) -> None:
    stat = FileStat(kind="char", mode=mode, uid=7, gid=992)
    assert mode_allows(stat, Identity(uid, frozenset(groups))) is allowed


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("!absent", Refusal.ABSENT),
        ("!chr 1:1 0660 0:5 EPERM", Refusal.CGROUP),
        ("!chr 1:1 0660 0:5", Refusal.GROUP),
        ("!chr 1:1 0666 0:5 EACCES", Refusal.LABEL),
        ("!chr 1:1 0666 0:5", None),
        ("!chr 1:1 0666 0:5 ENXIO", None),
    ],
)
def test_the_errno_of_an_open_tells_three_faults_apart(entry: str, why: Refusal | None) -> None:
    status = "Uid:\t9\t9\t9\t9\nGid:\t9\t9\t9\t9\nGroups:\t9\n"
    host = host_of(files={"/dev/x": entry, "/proc/self/status": status, "/sys/fs/selinux/enforce": "1"})
    assert refusal(host, "/dev/x") is why


def test_lxc_lines_have_the_majors_that_can_be_seen_and_a_word_for_those_that_cannot() -> None:
    host = host_of(files={"/dev/a0": "!chr 12:0 0666 0:0", "/proc/devices": "Character devices:\n 34 bb\n"})
    lines = lxc_lines(host, ("/dev/a0", "/dev/bb", "/dev/cc1", "/dev/dri")).splitlines()
    assert [line.split()[2] for line in lines if "devices.allow" in line] == ["12:*", "34:*", "MAJOR:*", "226:*"]
    assert lines[1] == "lxc.mount.entry: /dev/a0 dev/a0 none bind,optional,create=file"
    assert lines[-1].endswith("create=dir")


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_any_text_in_sysfs_gives_functions_of_the_two_classes_or_none(vendor: str, device: str, class_: str) -> None:
    root = "/sys/bus/pci/devices/0000:01:00.0"
    texts = {"vendor": vendor, "device": device, "class": class_}
    found = accelerators(host_of(files={f"{root}/{name}": f" {text}" for name, text in texts.items()}))
    assert not found or re.fullmatch(r"\s*(0x)?0?0?(03|12)[0-9a-fA-F]{4}\s*", class_)
