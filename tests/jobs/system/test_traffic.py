"""Statistics of network file systems' clients: text as the kernel prints it, and what may be wrong with it."""

import os
import shutil
from pathlib import Path

import pytest

from jobs.system import traffic
from jobs.system.device import Mount
from jobs.system.traffic import Lustre, Nfs, network_client

RECORDED = Path(__file__).parent / "recorded"
READ, WRITTEN = 1_283_457_024, 268_435_912  # of scratch, in the old text and the new


@pytest.fixture
def llite(tmp_path, monkeypatch):
    """Let a folder be that of the statistics; the older place is missing."""
    folder = tmp_path / "debug/llite"
    shutil.copytree(RECORDED / "llite_new", folder)
    monkeypatch.setattr(traffic, "_LLITE", (tmp_path / "proc/llite", folder))
    return folder


@pytest.fixture
def mountstats(tmp_path, monkeypatch):
    file = tmp_path / "mountstats"
    shutil.copy(RECORDED / "mountstats", file)
    monkeypatch.setattr(traffic, "_MOUNTSTATS", file)
    return file


@pytest.mark.parametrize(
    ("source", "fstype", "client"),
    [
        ("10.0.0.1@o2ib:/scratch", "lustre", Lustre("scratch")),
        ("10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch", "lustre", Lustre("scratch")),
        ("10.0.0.1@tcp,10.1.0.1@o2ib:/scratch/projects/p1", "lustre", Lustre("scratch")),
        ("server:/export", "nfs4", Nfs("/mnt")),
        ("server:/export", "nfs", Nfs("/mnt")),
        ("/dev/sda1", "ext4", None),
        ("user@host:/x", "fuse.sshfs", None),
    ],
)
def test_the_type_of_a_mount_decides_whose_statistics_tell_of_it(source, fstype, client):
    assert network_client(Mount("/mnt", source, fstype, "rw")) == client


@pytest.mark.parametrize(
    ("version", "name", "counts"),
    [
        ("llite", "scratch", (READ, WRITTEN)),
        ("llite_new", "scratch", (READ, WRITTEN)),
        ("llite", "scratch2", (8192, 0)),  # what it never did has no line
    ],
)
def test_lustre_counts_bytes_in_the_old_form_and_in_the_new(monkeypatch, version, name, counts):
    monkeypatch.setattr(traffic, "_LLITE", (RECORDED / version,))

    assert Lustre(name).traffic() == counts


def test_lustre_mounted_twice_is_counted_in_both_places(llite):
    shutil.copytree(llite / "scratch-ffff9d4a3b5c8000", llite / "scratch-ffff9d4a3b5c9000")

    assert Lustre("scratch").traffic() == (2 * READ, 2 * WRITTEN)


def test_the_older_place_of_the_statistics_is_taken_where_it_has_more_than_folders(llite, tmp_path):
    (tmp_path / "proc/llite/scratch-ffff9d4a3b5c8000").mkdir(parents=True)
    assert Lustre("scratch").traffic() == (READ, WRITTEN)

    shutil.copytree(RECORDED / "llite", tmp_path / "proc/llite", dirs_exist_ok=True)
    assert Lustre("scratch2").traffic() == (8192, 0)


def test_a_file_system_that_lustre_does_not_know_and_a_machine_without_it_are_errors_with_names(llite):
    with pytest.raises(FileNotFoundError, match=rf"{llite} has no scrat-\*"):
        Lustre("scrat").traffic()

    shutil.rmtree(llite)
    with pytest.raises(FileNotFoundError, match=str(llite)):
        Lustre("scratch").traffic()


def test_statistics_that_are_for_root_alone_are_an_error_of_permission(llite):
    user = os.geteuid()
    llite.parent.chmod(0)
    if user == 0:
        os.seteuid(65534)  # root may enter any folder; nobody may not
    try:
        with pytest.raises(PermissionError):
            Lustre("scratch").traffic()
    finally:
        os.seteuid(user)
        llite.parent.chmod(0o700)


@pytest.mark.parametrize(
    ("point", "traffic"), [("/home", (536_870_912, 5_242_880)), ("/mnt/data sets", (2_621_440, 0)), ("/over", (50, 60))]
)
def test_nfs_counts_what_went_to_and_from_the_server(mountstats, point, traffic):
    assert Nfs(point).traffic() == traffic


@pytest.mark.parametrize("point", ["/", "/net", "/home/ada", "/gone"])
def test_a_mount_that_counts_no_bytes_is_an_error_that_names_it(mountstats, point):
    with pytest.raises(FileNotFoundError, match=f"no bytes of {point}$"):
        Nfs(point).traffic()


def test_a_mount_point_that_is_no_utf8_is_found_all_the_same(mountstats):
    mountstats.write_bytes(mountstats.read_bytes().replace(b"/home ", b"/caf\xe9 "))

    assert Nfs(os.fsdecode(b"/caf\xe9")).traffic() == (536_870_912, 5_242_880)
