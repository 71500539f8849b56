"""Names, homes, secrets, serial numbers and addresses never get through; what a check needs does."""

import uuid

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vllm_probe.host.scrub import Scrubber

AROUND = st.text("ab =:/(),\n'\"", max_size=6)
DIGITS = st.text("123456789", min_size=6, max_size=14)
OCTET = st.integers(1, 254)
HEX = "123456789abcdef"


def scrubber() -> Scrubber:
    return Scrubber(homes=["/scratch/people/wren"], users=["wren"], hosts=["kestrel"])


IDENTITIES = st.one_of(
    st.uuids().map(str),
    st.uuids().map(lambda value: f"GPU-{value}"),
    st.uuids().map(lambda value: value.hex),
    st.text(HEX, min_size=64, max_size=64),
    st.lists(st.text(HEX, min_size=2, max_size=2), min_size=6, max_size=6).map(":".join),
    st.tuples(OCTET, OCTET, OCTET, OCTET).map(lambda parts: ".".join(map(str, parts))),
    st.lists(st.text(HEX, min_size=4, max_size=4), min_size=8, max_size=8).map(":".join),
    st.text(HEX, min_size=1, max_size=4).map(lambda part: f"fe80::{part}"),
)


@given(AROUND, IDENTITIES, AROUND)
def test_an_identity_never_survives(before: str, identity: str, after: str) -> None:
    assume(not before[-1:].isalnum() and not after[:1].isalnum() and before[-1:] != ":" and after[:1] != ":")
    assume("=" not in before[-2:] and not identity.startswith(("192.0.2.", "2001:db8", "00000000-0000")))
    assert identity.removeprefix("GPU-") not in scrubber().text(f"{before}{identity}{after}")


@given(
    st.sampled_from(["Serial Number : {}", '"serial": "{}"', "<serial>{}</serial>", "unique_id {}", "hive_id {}"]),
    DIGITS,
)
def test_a_serial_number_never_survives(form: str, serial: str) -> None:
    assert serial not in scrubber().text(form.format(serial))
    assert serial.encode() not in scrubber().data(serial.encode(), "serial: ")


@given(
    st.sampled_from(["/home/{}", "/Users/{}", "C:\\Users\\{}", "/media/{}"]), st.text("klmpqtvwxyz", min_size=3), AROUND
)
def test_the_name_in_a_home_path_never_survives(form: str, name: str, after: str) -> None:
    scrubbed = scrubber().text(f"HF={form.format(name)}/.cache{after}")
    assert name not in scrubbed
    assert "/.cache" in scrubbed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/scratch/people/wren/venv", "/home/user/venv"),
        ("/scratch/people/wrench", "/scratch/people/wrench"),
        ("drwx wren wren /srv/wren_data", "drwx user user /srv/user_data"),
        ("Linux kestrel.lab.example 6.1", "Linux host 6.1"),
        ("(builder@forge) gcc", "(user@host) gcc"),
        ("/user.slice/user@1000.service/x", "/user.slice/user@1000.service/x"),
        ("vllm\0serve\0--api-key\0abc\0--port", "vllm\0serve\0--api-key\0<secret>\0--port"),
        ("HF_TOKEN=abc next", "HF_TOKEN=<secret> next"),
        ("http://me:abc@proxy:80", "http://me:<secret>@proxy:80"),
        ("login hf_abcdefghijklmnopqrst", "login <secret>"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer <secret>"),
    ],
)
def test_names_and_secrets_are_replaced(text: str, expected: str) -> None:
    assert scrubber().text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "nvidia_curand_cu12-10.3.2.106.dist-info",
        "nvidia-curand-cu12==10.3.2.106",
        "Version: 10.3.2.106",
        "__version__ = '1.2.3.4'",
        "Driver Version: 1.19.2.32",
        "neuron driver 2.26.5.0 loaded",
        "firmware=22.36.10.08",
        "/lib/libnvinfer.so.8.6.1.6",
        "0000:03:00.0 10de:2684 rev a1",
        "std::vector c10::Error dead::beef",
        "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        "listen on 127.0.0.1 and 0.0.0.0",
        "CapEff:\t000001ffffffffff",
        "--max-num-batched-tokens 8192",
        "Serial Number : N/A",
        "/root/.cache",
    ],
)
def test_what_names_nobody_is_kept(text: str) -> None:
    assert Scrubber(["/root"], ["root", "nvidia", "al"], ["ubuntu"]).text(text) == text


def test_the_same_identity_gets_the_same_stand_in_and_another_gets_another() -> None:
    scrub = scrubber()
    first, second = (str(uuid.UUID(int=number << 64 | 0xABC)) for number in (5, 6))
    listed = scrub.text(f"GPU-{first} GPU-{second}").split()
    assert scrub.text(f"visible: GPU-{second.upper()}") == f"visible: {listed[1]}"
    assert listed[0] != listed[1]
    assert scrubber().text(" ".join(listed)) == " ".join(listed)


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "OPENAI_API_KEY", "DB_PASSWORD", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY"]
)
def test_the_value_of_a_secret_variable_is_not_kept(name: str) -> None:
    assert scrubber().variable(name, "anything") == "<secret>"


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "KEYBOARD"])
def test_the_value_of_another_variable_is_kept(name: str) -> None:
    assert scrubber().variable(name, "0,1") == "0,1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/scratch/ada/venv", "/scratch/user/venv"),
        ("PATH=/data/ada:/usr/bin", "PATH=/data/user:/usr/bin"),
        ("in D:\\\\ada", "in D:\\\\user"),
        ("NVIDIA RTX 6000 Ada", "NVIDIA RTX 6000 Ada"),
        ("torch._ada ada /lib/libada.so /ada.so", "torch._ada ada /lib/libada.so /ada.so"),
        ("/data/models", "/data/models"),
    ],
)
def test_the_name_of_an_account_is_replaced_where_it_is_part_of_a_path(text: str, expected: str) -> None:
    assert Scrubber([], [], [], ["ada", "data"]).text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "/sys/bus/pci/devices/0000:01:00.0/max_link_speed",
        "/sys/fs/cgroup/cpu.max",
        "../../../max/information",
        "read /proc/driver/nvidia/gpus/max/information.",
        "/dev/cpu/0/max",
    ],
)
def test_paths_that_the_kernel_names_stay_whatever_people_are_called(text: str) -> None:
    assert Scrubber([], ["max"], ["speed"], ["information", "gpus"]).text(text) == text


def test_a_person_is_replaced_beside_a_path_that_the_kernel_names() -> None:
    assert Scrubber([], ["max"], []).text("max: cannot read /sys/fs/cgroup/cpu.max of max") == (
        "user: cannot read /sys/fs/cgroup/cpu.max of user"
    )
