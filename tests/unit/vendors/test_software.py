import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.detect.scenes import host_of
from vllm_probe.vendors.software import container_kind, installed, parse_kernel, parse_version_file, read_software

SITE = "/opt/venv/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", "2.13.0+cpu"),
        ("__version__: str\n__version__ = version = '0.10.0'\n__version_tuple__ = (0, 10, 0)\n", "0.10.0"),
        ('__version__ = "0.17.0+cpu"', "0.17.0+cpu"),
        ("version = '1'\n", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_the_file_that_assigns_it(text: str, version: str | None) -> None:
    assert parse_version_file(text) == version


@given(st.text())
def test_any_text_as_a_version_file_gives_one_line_or_nothing(text: str) -> None:
    version = parse_version_file(text)
    assert version is None or (version and "\n" not in version)
    assert parse_kernel(text) is None or "Linux version" in text


def test_a_distribution_without_a_version_file_is_known_by_its_metadata_folder() -> None:
    host = host_of(
        files={f"{SITE}/vllm-0.9.2+cpu.dist-info/METADATA": "", f"{SITE}/torchvision-0.1.dist-info/METADATA": ""}
    )
    assert installed(host, "vllm") == "0.9.2+cpu"
    assert installed(host, "torch") is None


@pytest.mark.parametrize(
    ("files", "env", "kind"),
    [
        ({}, {}, None),
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": "", "/.dockerenv": ""}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"/proc/1/environ": "PATH=/bin\0container=lxc\0"}, {}, "lxc"),
        ({}, {"container": "lxc"}, "lxc"),
        ({"/proc/version": "Linux version 5.15.146.1-microsoft-standard-WSL2"}, {}, "wsl"),
        ({"/proc/version": "Linux version 5.15.146.1-microsoft-standard-WSL2", "/.dockerenv": ""}, {}, "docker"),
    ],
)
def test_the_kind_of_container_is_told_by_its_marks(
    files: dict[str, str], env: dict[str, str], kind: str | None
) -> None:
    assert container_kind(host_of(files=files, env=env)) == kind


def test_software_is_read_without_being_imported() -> None:
    files = {
        f"{SITE}/torch/version.py": "__version__ = '2.11.0+cu130'\n",
        "/proc/version": "Linux version 6.8.0-40 (gcc)",
    }
    software = read_software(host_of(files=files, env={"VIRTUAL_ENV": "/opt/venv"}))
    assert (software.torch, software.vllm, software.kernel, software.container) == (
        "2.11.0+cu130",
        None,
        "6.8.0-40",
        None,
    )
