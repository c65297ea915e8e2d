"""Which mount and which device stand behind a path: on recorded text, and on this machine."""

import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.system import device
from jobs.system.device import Device, DeviceRequests, Mount, device_of, devices_behind, devices_of_every_byte, mount_of
from tests.lies import setup

RECORDED = r"""
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:45 / /merged rw,relatime - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d
31 22 0:46 / /home rw,noatime shared:8 master:2 - nfs4 server:/export/home rw,vers=4.2,rsize=1048576
32 22 0:47 / /lustre/work rw,flock - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/work rw,flock,lazystatfs
33 22 0:48 /@data /data rw,relatime - btrfs /dev/nvme0n1p3 rw,ssd,subvolid=257,subvol=/@data
34 22 8:17 / /media/my\040disk rw - ext4 /dev/sdb1 rw
35 34 0:50 / /media/my\040disk/tab\011and\134slash rw - tmpfs tmpfs rw
36 22 8:33 / /over rw - xfs /dev/sdc1 rw
37 22 8:49 / /over ro - xfs /dev/sdd1 rw
38 22 0:51 / /empty rw - tmpfs  rw
39 22 0:52 / /data/deep/er rw - fuse.sshfs user@host:/x rw
40 22 0:53 / /café rw - ext4 /dev/sde1 rw
""".lstrip()
SPECIAL = {" ": r"\040", "\t": r"\011", "\n": r"\012", "\\": r"\134"}
# The kernel escapes these four; any other character but NUL may stand in a name as it is.
names = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1)


def escape(text):
    return "".join(SPECIAL.get(character, character) for character in text)


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    file = tmp_path / "mountinfo"
    file.write_text(RECORDED, encoding="utf-8")
    monkeypatch.setattr(device, "_MOUNTINFO", file)
    return file


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/etc", Mount("/", "/dev/sda2", "ext4", "rw,relatime")),
        ("/merged/x", Mount("/merged", "overlay", "overlay", "rw,relatime")),
        ("/home/ada", Mount("/home", "server:/export/home", "nfs4", "rw,noatime")),
        ("/homes", Mount("/", "/dev/sda2", "ext4", "rw,relatime")),
        ("/lustre/work/x", Mount("/lustre/work", "10.0.0.1@o2ib:10.0.0.2@o2ib:/work", "lustre", "rw,flock")),
        ("/lustre", Mount("/", "/dev/sda2", "ext4", "rw,relatime")),
        ("/data", Mount("/data", "/dev/nvme0n1p3", "btrfs", "rw,relatime")),
        ("/data/deep", Mount("/data", "/dev/nvme0n1p3", "btrfs", "rw,relatime")),
        ("/data/deep/er/x", Mount("/data/deep/er", "user@host:/x", "fuse.sshfs", "rw")),
        ("/media/my disk/x", Mount("/media/my disk", "/dev/sdb1", "ext4", "rw")),
        ("/media/my disk/tab\tand\\slash", Mount("/media/my disk/tab\tand\\slash", "tmpfs", "tmpfs", "rw")),
        ("/over/x", Mount("/over", "/dev/sdd1", "xfs", "ro")),
        ("/empty", Mount("/empty", "", "tmpfs", "rw")),
        ("/café", Mount("/café", "/dev/sde1", "ext4", "rw")),
    ],
)
def test_a_path_belongs_to_the_deepest_mount_and_there_to_the_last(recorded, path, mount):
    assert mount_of(Path(path)) == mount


def test_a_link_belongs_to_the_mount_it_leads_to(recorded, tmp_path):
    (tmp_path / "link").symlink_to("/over/there")

    assert mount_of(tmp_path / "link").source == "/dev/sdd1"


@pytest.mark.parametrize("text", [None, ""])
def test_without_a_list_of_mounts_every_field_is_unknown(tmp_path, monkeypatch, text):
    file = tmp_path / "mountinfo"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(device, "_MOUNTINFO", file)

    assert set(asdict(mount_of(tmp_path)).values()) == {"unknown"}


@given(st.lists(names, min_size=1, max_size=4, unique=True))
def test_names_that_hold_line_ends_of_unicode_do_not_split_a_line(tmp_path_factory, points):
    file = tmp_path_factory.mktemp("mountinfo") / "mountinfo"
    tags = ("", "shared:1 ", "shared:1 master:2 ", "unbindable ")  # one of them in each line
    lines = [f"36 22 8:{n} / /{escape(point)} rw {tags[n]}- ext4 /dev/sd{n} rw\n" for n, point in enumerate(points)]
    file.write_bytes("".join(lines).encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "_MOUNTINFO", file)
        patch.setattr(device.os.path, "realpath", os.fspath)
        for number, point in enumerate(points):
            if point not in (".", ".."):
                assert mount_of("/" + point).source == f"/dev/sd{number}"


def test_a_network_file_system_has_no_device(recorded, monkeypatch):
    class Path0(type(Path())):
        def stat(self, **_):
            return os.stat_result((0o40755, 1, 46, 1, 0, 0, 0, 0, 0, 0))  # device 0:46

    assert device_of(Path0("/home/ada")) is None


def test_a_device_that_sysfs_does_not_know_is_no_device(tmp_path, monkeypatch):
    _sysfs(tmp_path, monkeypatch)
    (tmp_path / "sys/dev/block").rename(tmp_path / "sys/dev/gone")

    assert device_of(tmp_path) is None


def test_a_partition_counts_as_its_whole_disk_and_nothing_is_behind_that(tmp_path, monkeypatch):
    _sysfs(tmp_path, monkeypatch)

    assert device_of(tmp_path) == Device("sdz")
    assert devices_behind(tmp_path) == [Device("sdz")]
    assert Device("sdz").traffic() == (100 * 512, 300 * 512)  # sectors of 512 bytes


def test_no_device_is_behind_a_file_system_of_the_kernel():
    assert devices_behind(Path("/proc")) == []


def test_behind_a_device_of_several_members_are_their_whole_disks_each_once(tmp_path, monkeypatch):
    """A mapped device over a partition of a first disk and a RAID of another partition there and one of a second."""
    node = _sysfs(tmp_path, monkeypatch)
    for member in ("sda/sda1", "sda/sda2", "sdb/sdb1"):
        _partition(node, tmp_path / "sys/block", *member.split("/"))
    _virtual(node, tmp_path / "sys/block", "md0", ["sda/sda2", "sdb/sdb1"])
    _virtual(node, tmp_path / "sys/block", "sdz", ["md0", "sda/sda1"])

    assert devices_behind(tmp_path) == [Device("sdz"), Device("md0"), Device("sda"), Device("sdb")]
    assert devices_of_every_byte(tmp_path) == [Device("sdz")]  # who knows which part went to which


def test_behind_a_loop_device_is_the_device_of_its_file(disk, staged):
    name, point = staged(setup.disk, disk / "image", disk / "point")

    assert devices_behind(point) == [Device(name), *devices_behind(disk)]
    assert devices_of_every_byte(point) == [Device(name), *devices_of_every_byte(disk)]
    assert device_of(point) == Device(name)


def test_behind_a_loop_device_of_a_block_device_is_that_device(disk, monkeypatch, staged):
    name, _ = staged(setup.disk, disk / "image", disk / "point")
    over = staged(setup.attach, f"/dev/{name}")
    monkeypatch.setattr(device, "device_of", lambda path: Device(over))

    assert devices_behind(disk)[:2] == [Device(over), Device(name)]


@pytest.mark.parametrize("file", ["/gone/disk.img", "/gone/disk.img (deleted)", "."])
def test_a_loop_device_whose_file_is_out_of_sight_or_seems_to_lie_on_itself_is_the_last_that_is_known(
    tmp_path, monkeypatch, file
):
    """The path of its file is that in another mount namespace; here it may lead to a file on the loop device."""
    node = _sysfs(tmp_path, monkeypatch)
    (node / "sdz/loop").mkdir()
    (node / "sdz/loop/backing_file").write_text(f"{tmp_path / file}\n")

    assert devices_behind(tmp_path) == [Device("sdz")]


def _partition(node, block, disk, partition):
    (node / disk / partition).mkdir(parents=True)
    (node / disk / partition / "partition").write_text("1\n")
    (node / disk / "stat").touch()
    if not (block / disk).exists():
        (block / disk).symlink_to(node / disk)


def _virtual(node, block, name, members):
    (node / name / "slaves").mkdir(parents=True)
    (node / name / "stat").touch()
    for member in members:
        (node / name / "slaves" / Path(member).name).symlink_to(node / member)
    if not (block / name).exists():
        (block / name).symlink_to(node / name)


def _sysfs(tmp_path, monkeypatch):
    """Build a sysfs in which the device of `tmp_path` is the first partition of the disk sdz."""
    number = tmp_path.stat().st_dev
    if os.major(number) == 0:
        pytest.skip("the file system has no device number of its own")
    node = tmp_path / "sys/devices/pci/block"
    (node / "sdz/sdz1").mkdir(parents=True)
    (node / "sdz/sdz1/partition").write_text("1\n")
    (node / "sdz/stat").write_text("5 0 100 0 7 0 300 0 0 0 0\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block" / f"{os.major(number)}:{os.minor(number)}").symlink_to(node / "sdz/sdz1")
    (tmp_path / "sys/block").mkdir()
    (tmp_path / "sys/block/sdz").symlink_to(node / "sdz")

    def below(first, *rest):
        return Path(str(first).replace("/sys/", f"{tmp_path}/sys/", 1), *rest)

    monkeypatch.setattr(device, "Path", below)
    return node


def test_facts_are_what_sysfs_has_and_the_others_unknown(tmp_path, monkeypatch):
    node = _sysfs(tmp_path, monkeypatch) / "sdz"
    facts = {"name": "sdz", "model": "ST4000NM0033-9ZM", "rotational": True}
    assert Device("sdz").facts() == {**dict.fromkeys(facts, "unknown"), "name": "sdz"}
    assert (Device("sdz").logical_block_bytes, Device("sdz").request_bytes) == (4096, 1 << 60)

    texts = {"queue/rotational": "1", "device/model": "ST4000NM0033-9ZM", "queue/logical_block_size": "512"}
    for file, text in {**texts, "queue/max_sectors_kb": "1280", "dev": "8:16"}.items():
        (node / file).parent.mkdir(exist_ok=True)
        (node / file).write_text(f"{text}\n")

    assert Device("sdz").facts() == facts
    assert (Device("sdz").logical_block_bytes, Device("sdz").request_bytes) == (512, 1280 << 10)
    assert Device("sdz").number == "8:16"
    (node / "queue/rotational").write_text("0\n")
    assert Device("sdz").facts()["rotational"] is False


def test_a_file_system_is_identified_by_what_mount_and_statvfs_tell(tmp_path):
    told = subprocess.run(
        ["findmnt", "-n", "-o", "SOURCE,FSTYPE,MAJ:MIN", "-T", tmp_path], capture_output=True, text=True, check=True
    ).stdout.split()
    fsid = subprocess.run(
        ["stat", "-f", "-c", "%i", tmp_path], capture_output=True, text=True, check=True
    ).stdout.strip()

    found = device.filesystem_of(tmp_path)

    assert [found["source"], found["fstype"]] == told[:2]
    assert found["device"] in (told[2], "")
    assert f"{int(found['fsid'], 16):016x}" == f"{fsid:0>16}"[8:] + f"{fsid:0>16}"[:8]  # stat(1) has the words swapped


@pytest.mark.parametrize(
    ("fields", "use"),
    [
        # Of Linux 5.5 and later, 4.18 and before: discards and flushes came later.
        ("8 1 80 40 5 2 16 30 0 60 70 3 0 9 20 4 100", DeviceRequests(8, 80 * 512, 8, 16 * 512, 4, 0.06, 0.09, 0.1)),
        ("8 1 80 40 5 2 16 30 0 60 70 3 0 9 20", DeviceRequests(8, 80 * 512, 8, 16 * 512, 0, 0.06, 0.09, 0.0)),
        ("8 1 80 40 5 2 16 30 0 60 70", DeviceRequests(8, 80 * 512, 5, 16 * 512, 0, 0.06, 0.07, 0.0)),
    ],
)
def test_what_was_asked_of_a_device_is_read_from_the_kernels_list_however_long_that_is(fields, use, monkeypatch):
    monkeypatch.setattr(device, "read_kernel", lambda _: f"{fields}\n")

    assert Device("sda").read_counters() == use


def test_of_a_raid_all_members_are_the_lowest_device_and_of_a_plain_disk_there_is_none(monkeypatch):
    below = {"md0": ["dm-0", "sdb"], "dm-0": ["sda"], "sda": [], "sdb": []}
    monkeypatch.setattr(device, "_devices_below", lambda each: [Device(name) for name in below[each.name]])
    found = []
    for top in ("md0", "sda"):
        monkeypatch.setattr(device, "device_of", lambda _, top=top: Device(top))
        found.append(device.lowest_behind(Path("/")))

    assert [each and each.name for each in found] == ["sdb+sda", None]


def test_several_devices_are_counted_as_one(monkeypatch):
    counts = {"a": DeviceRequests(1, 2, 3, 4, 5, 6.0, 7.0, 8.0), "b": DeviceRequests(*[10] * 8)}
    monkeypatch.setattr(Device, "read_counters", lambda self: counts[self.name])
    monkeypatch.setattr(Device, "logical_block_bytes", property(lambda self: {"a": 512, "b": 4096}[self.name]))
    monkeypatch.setattr(Device, "request_bytes", property(lambda self: {"a": 1 << 17, "b": 1 << 20}[self.name]))

    several = device.combine_devices([Device("a"), Device("b"), Device("a")])
    assert several.read_counters() == DeviceRequests(11, 12, 13, 14, 15, 16.0, 17.0, 18.0)
    assert several.traffic() == (12, 14)
    assert (several.name, several.logical_block_bytes, several.request_bytes) == ("a+b", 512, 1 << 20)
    assert device.combine_devices([Device("a"), Device("a")]) == Device("a")
    assert device.combine_devices([Device("a"), None]) is None
