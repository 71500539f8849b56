"""Versions in the files of installers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.vendors.ascend.hosts import host_of
from vllm_probe.vendors.ascend.versions import cann_roots, parse_version, read_versions

TOOLKIT = "/usr/local/Ascend/ascend-toolkit/latest/x86_64-linux/ascend_toolkit_install.info"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Version=25.5.1\nascendhal_version=7.35.23\n", "25.5.1"),
        ("package_name=Ascend-cann-toolkit\nversion=8.0.RC3\ninnerversion=V100R001C20\n", "8.0.RC3"),
        ("compatible_version=[V100R001C29]\n", None),
        ("Version=\n", None),
        ("", None),
    ],
)
def test_the_version_is_the_line_of_that_name(text: str, version: str | None) -> None:
    assert parse_version(text) == version


@given(st.text() | st.text(alphabet="Vversion=0.1\n\"' ").map(lambda text: f"Version={text}"))
def test_any_text_gives_a_version_that_begins_with_a_number_or_none(text: str) -> None:
    version = parse_version(text)
    assert version is None or version[0].isdigit()


def test_each_version_comes_with_its_file() -> None:
    files = {
        TOOLKIT: "version=8.2.RC1\n",
        "/usr/local/Ascend/driver/version.info": "Version=25.2.0\n",
        "/usr/local/Ascend/firmware/version.info": "Version=7.7.0\n",
    }
    assert read_versions(host_of(files)) == {
        "cann": ("8.2.RC1", TOOLKIT),
        "driver": ("25.2.0", "/usr/local/Ascend/driver/version.info"),
        "firmware": ("7.7.0", "/usr/local/Ascend/firmware/version.info"),
    }
    assert read_versions(host_of({})) == {}


def test_cann_is_first_looked_for_where_its_environment_points() -> None:
    env = {"ASCEND_TOOLKIT_HOME": "/opt/cann/latest/"}
    host = host_of({"/opt/cann/latest/version.info": "Version=8.5.0\n", TOOLKIT: "version=8.2.RC1\n"}, env=env)
    assert cann_roots(host)[0] == "/opt/cann/latest"
    assert read_versions(host)["cann"] == ("8.5.0", "/opt/cann/latest/version.info")


def test_the_driver_is_looked_for_where_it_was_installed() -> None:
    files = {
        "/etc/ascend_install.info": "Driver_Install_Path_Param=/opt/Ascend\n",
        "/opt/Ascend/driver/version.info": "Version=24.1\n",
    }
    assert read_versions(host_of(files))["driver"] == ("24.1", "/opt/Ascend/driver/version.info")
