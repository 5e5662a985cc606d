package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

func TestHealthyFilesystem(t *testing.T) {
	d := disklab.NewExt4(t, 16<<20, "-N", "64")
	h := operationtest.RealHost()
	for i := range 60 { // there are 64 inodes
		if err := os.WriteFile(filepath.Join(d.Dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			break
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.Dir, &st); err != nil {
		t.Fatal(err)
	}
	for _, parameters := range []map[string]string{{"mountPoint": d.Dir}, {"mountPoint": d.Dir + "/3"}, {"device": d.Name}} {
		out, kept := operationtest.Succeed(t, Mounts(h), parameters)
		r := out.Results
		for key, want := range map[string]string{
			"mountPoint": d.Dir, "device": d.Name, "fsType": "ext4", "source": d.Device, "mountedReadOnly": "false", "errors": "0", "refusing": "",
			"sizeBytes": strconv.FormatUint(st.Blocks*uint64(st.Frsize), 10), "availableBytes": strconv.FormatUint(st.Bavail*uint64(st.Frsize), 10),
			"inodes": strconv.FormatUint(st.Files, 10), "filesystems": "1", "note": "",
		} {
			if r[key] != want {
				t.Errorf("%v: %s is %q, want %q", parameters, key, r[key], want)
			}
		}
		if !strings.HasPrefix(r["full"], d.Dir+" inodes ") || !strings.Contains(kept.Files["mounts.txt"], "ext4 on "+d.Name+" at "+d.Dir) {
			t.Errorf("%v\n%s", r, kept.Files["mounts.txt"])
		}
	}
	out, kept := operationtest.Succeed(t, Mounts(h), nil)
	if !strings.Contains(kept.Files["mounts.txt"], d.Dir) || strings.Contains(kept.Files["mounts.txt"], "/proc ") || out.Results["silent"] != "" {
		t.Errorf("%v\n%s", out.Results, kept.Files["mounts.txt"])
	}
	out, kept = operationtest.Succeed(t, Mounts(h), map[string]string{"all": "true"})
	if !strings.Contains(kept.Files["mounts.txt"], "/proc ") {
		t.Errorf("%v\n%s", out.Results, kept.Files["mounts.txt"])
	}
	parameters := map[string]string{"mountPoint": d.Dir}
	if no := operationtest.Refuse(t, CheckFilesystemReadonly(h), parameters); no.Reason != "NoFilesystemReadOnly" || !strings.Contains(no.Message, "is not marked as read-only and has no recorded errors") {
		t.Errorf("%+v", no)
	}
	if no := operationtest.Refuse(t, CheckFilesystemErrors(h), parameters); no.Reason != "NoFilesystemErrors" {
		t.Errorf("%+v", no)
	}

	// It is mounted read-only on purpose.
	if err := unix.Mount(d.Device, d.Dir, "ext4", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if no := operationtest.Refuse(t, CheckFilesystemReadonly(h), parameters); !strings.Contains(no.Message, "is mounted read-only") {
		t.Errorf("%+v", no)
	}
	for _, bad := range []map[string]string{{"device": "sdzz"}, {"deviceNumber": "x"}, {"deviceNumber": "4095:1"}} {
		if _, _, err := operationtest.Perform(t, Mounts(h), bad); err == nil {
			t.Errorf("%v", bad)
		}
	}
}

func TestBrokenFilesystem(t *testing.T) {
	operationtest.NeedRoot(t)
	fault := &inject.ReadonlyFS{StateDir: t.TempDir(), Limit: time.Minute}
	if err := fault.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := fault.Close(); err != nil {
			t.Error(err)
		}
	}()
	device, dir := fault.Mount()
	h, parameters := operationtest.RealHost(), map[string]string{"mountPoint": dir}
	out, _ := operationtest.Succeed(t, CheckFilesystemReadonly(h), parameters)
	t.Logf("%+v %v", *out.Verdict, out.Results)
	if v := out.Verdict; v.Reason != "FilesystemReadOnly" || !strings.HasPrefix(v.Message, fmt.Sprintf("ext4 on %s at %s refuses writes (", filepath.Base(device), dir)) || !strings.Contains(v.Message, "1 error, the last at 20") {
		t.Errorf("%+v", v)
	}
	out, _ = operationtest.Succeed(t, CheckFilesystemErrors(h), parameters)
	t.Logf("%+v", *out.Verdict)
	if v := out.Verdict; v.Reason != "FilesystemErrors" || out.Results["errors"] != "1" || !strings.Contains(out.Results["lastError"], " in ") {
		t.Errorf("%+v %v", v, out.Results)
	}
	out, _ = operationtest.Succeed(t, Mounts(h), parameters)
	if r := out.Results; r["refusesWrites"] == "" || r["mountedReadOnly"] != "true" || !strings.HasPrefix(r["refusing"], dir) || r["withErrors"] != dir+" 1" {
		t.Errorf("%v", r)
	}
	if _, _, err := operationtest.Perform(t, CheckFilesystemErrors(h), map[string]string{"mountPoint": dir, "maxAge": "1h"}); err != nil {
		t.Error(err)
	}
	if no := operationtest.Refuse(t, CheckFilesystemErrors(h), map[string]string{"mountPoint": dir, "maxAge": "1ns"}); no.Reason != "NoFilesystemErrors" {
		t.Errorf("%+v", no)
	}
}

func TestShutDownXFS(t *testing.T) {
	d := disklab.NewXFS(t)
	h, parameters := operationtest.RealHost(), map[string]string{"mountPoint": d.Dir}
	if no := operationtest.Refuse(t, CheckFilesystemReadonly(h), parameters); no.Reason != "NoFilesystemReadOnly" {
		t.Errorf("%+v", no)
	}
	d.ShutDown()
	out, _ := operationtest.Succeed(t, CheckFilesystemReadonly(h), parameters)
	t.Logf("%+v", *out.Verdict)
	if v := out.Verdict; v.Message != "xfs on "+d.Name+" at "+d.Dir+" refuses writes (shutdown)" || out.Results["refusesWrites"] != "shutdown" {
		t.Errorf("%+v %v", v, out.Results)
	}
	out, _ = operationtest.Succeed(t, Mounts(h), parameters)
	if out.Results["refusing"] != d.Dir+" shutdown" {
		t.Errorf("%v", out.Results)
	}
}

// A fixture node: a pod's volume that refuses writes, btrfs with errors, and mounts that hide
// another.
func TestFilesystemsOfAPod(t *testing.T) {
	const volume = "/var/lib/kubelet/pods/0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60/volumes/kubernetes.io~csi/pvc-7/mount"
	h := operationtest.HostOf(t, map[string]string{
		"/proc/1/mountinfo": "20 1 259:2 / / rw - f2fs /dev/nvme0n1p2 rw,noquota\n21 20 259:1 / " + volume + " rw - ext4 /dev/nvme1n1 ro,errors=remount-ro\n" +
			"22 20 0:30 /vol /b rw - btrfs /dev/sdb rw,subvol=/vol\n23 20 0:40 / /n ro - nfs4 filer:/x ro\n24 23 259:2 /y /n rw - f2fs /dev/nvme0n1p2 rw\n",
		"/sys/devices/nvme1n1/dev": "259:1\n", "/sys/class/block/nvme1n1": "-> ../../devices/nvme1n1", "/sys/dev/block/259:1": "-> ../../devices/nvme1n1",
		"/sys/devices/sdb/dev": "8:16\n", "/sys/class/block/sdb": "-> ../../devices/sdb", "/sys/dev/block/8:16": "-> ../../devices/sdb",
		"/sys/devices/sdc/dev": "8:32\n", "/sys/class/block/sdc": "-> ../../devices/sdc", "/sys/dev/block/8:32": "-> ../../devices/sdc",
		"/sys/fs/ext4/nvme1n1/errors_count":         "12\n",
		"/sys/fs/ext4/nvme1n1/last_error_time":      "1795287600\n",
		"/sys/fs/ext4/nvme1n1/last_error_func":      "ext4_lookup\n",
		"/sys/fs/ext4/nvme1n1/last_error_line":      "1855\n",
		"/sys/fs/ext4/nvme1n1/last_error_errcode":   "5\n",
		"/sys/fs/btrfs/uuid/devices/sdb":            "-> ../../../../devices/sdb",
		"/sys/fs/btrfs/uuid/devices/sdc":            "-> ../../../../devices/sdc",
		"/sys/fs/btrfs/uuid/devinfo/1/error_stats":  "write_errs 3\nread_errs 0\nflush_errs 1\ncorruption_errs 0\ngeneration_errs 0\n",
		"/sys/fs/btrfs/features/extended_iref":      "0\n",
		"/sys/fs/btrfs/other/devinfo/1/error_stats": "write_errs 9\n",
	})
	out, _ := operationtest.Succeed(t, CheckFilesystemReadonly(h), nil)
	want := "ext4 on nvme1n1 at " + volume + " refuses writes (read-only after errors): 12 errors, the last at 2026-11-21T19:00:00Z in ext4_lookup:1855 (EFSCORRUPTED)" +
		"; pod 0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60; volume pvc-7"
	if out.Verdict.Message != want {
		t.Errorf("%s\nwant %s", out.Verdict.Message, want)
	}
	if r := out.Results; r["volumes"] != "pvc-7" || r["affectedPods"] != "1" || r["filesystems"] != "1" {
		t.Errorf("%v", r)
	}
	for _, parameters := range []map[string]string{{"device": "sdb"}, {"device": "sdc"}, {"deviceNumber": "0:30"}, {"mountPoint": "/b"}} {
		out, _ = operationtest.Succeed(t, CheckFilesystemErrors(h), parameters)
		if out.Verdict.Message != "btrfs on sdb at /b: errors: write 3, flush 1" || out.Results["errors"] != "4" {
			t.Errorf("%v: %+v %v", parameters, *out.Verdict, out.Results)
		}
	}
	out, _ = operationtest.Succeed(t, DiskErrors(h), map[string]string{"device": "sdc"})
	if r := out.Results; r["filesystemErrors"] != "btrfs on sdb at /b: errors: write 3, flush 1" {
		t.Errorf("%v", r)
	}
	out, _ = operationtest.Succeed(t, CheckFilesystemErrors(h), nil)
	if out.Results["filesystems"] != "2" {
		t.Errorf("%v", out.Results)
	}
	if _, _, err := operationtest.Perform(t, CheckFilesystemErrors(h), map[string]string{"deviceNumber": "259:2"}); err == nil || !strings.Contains(err.Error(), "records no errors") {
		t.Errorf("%v", err)
	}
	if no := operationtest.Refuse(t, CheckFilesystemReadonly(h), map[string]string{"deviceNumber": "259:2"}); !strings.Contains(no.Message, "records no errors") {
		t.Errorf("%+v", no)
	}
}

// A disk that does not answer while the superblock of its ext4 is read costs only that check: the
// errors that sysfs has are reported.
func TestExt4OnADiskThatHangs(t *testing.T) {
	h := operationtest.HostOf(t, map[string]string{
		"/proc/1/mountinfo":    "20 1 8:0 / /data rw - ext4 /dev/sda rw,errors=remount-ro\n",
		"/sys/devices/sda/dev": "8:0\n", "/sys/class/block/sda": "-> ../../devices/sda", "/sys/dev/block/8:0": "-> ../../devices/sda",
		"/sys/fs/ext4/sda/errors_count": "1\n", "/sys/fs/ext4/sda/last_error_time": "1795287600\n", "/sys/fs/ext4/sda/last_error_func": "ext4_lookup\n",
		"/dev/sda": strings.Repeat("\x00", 4096),
	})
	disklab.HangFiles(t, h.FS.Path("/dev/sda"))
	out, _ := operationtest.Succeed(t, DiskErrors(h), map[string]string{"mountPoint": "/data"}) // it does not read the disk
	if !strings.HasPrefix(out.Results["filesystemErrors"], "ext4 on sda at /data: 1 error") {
		t.Errorf("%v", out.Results)
	}
	out, kept := operationtest.Succeed(t, Mounts(h), map[string]string{"mountPoint": "/data"})
	if r := out.Results; r["errors"] != "1" || !strings.Contains(r["note"], "no answer within") {
		t.Errorf("%v\n%s", r, kept.Files["mounts.txt"])
	}
	if _, _, err := operationtest.Perform(t, CheckFilesystemReadonly(h), map[string]string{"mountPoint": "/data"}); err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Errorf("%v", err)
	}
	out, _ = operationtest.Succeed(t, CheckFilesystemErrors(h), map[string]string{"mountPoint": "/data"})
	if out.Results["errors"] != "1" {
		t.Errorf("%v", out.Results)
	}
}

// A disk was stalled and reset, and the root became read-only. The root is on LVM on the second
// partition; the device that stalled is the disk.
func TestFilesystemsOfADisk(t *testing.T) {
	files := map[string]string{
		"/proc/1/mountinfo":         "20 1 254:0 / / ro - ext4 /dev/mapper/vg-root ro,errors=remount-ro\n21 20 8:1 / /boot rw - vfat /dev/sda1 rw\n",
		"/sys/devices/sda/sda1/dev": "8:1", "/sys/devices/sda/sda1/partition": "1", "/sys/devices/sda/sda2/partition": "2",
		"/sys/devices/sda/sda2/holders/dm-0": "-> ../../../dm-0", "/sys/devices/dm-0/dm/name": "vg-root",
		"/sys/fs/ext4/dm-0/errors_count": "1\n", "/sys/fs/ext4/dm-0/last_error_func": "ext4_journal_check_start\n",
	}
	for name, number := range map[string]string{"sda": "8:0", "sda/sda1": "8:1", "sda/sda2": "8:2", "dm-0": "254:0"} {
		base := name[strings.LastIndexByte(name, '/')+1:]
		files["/sys/devices/"+name+"/dev"] = number
		files["/sys/class/block/"+base] = "-> ../../devices/" + name
		files["/sys/dev/block/"+number] = "-> ../../devices/" + name
		if base == name {
			files["/sys/block/"+base] = "-> ../devices/" + name
		}
	}
	h := operationtest.HostOf(t, files)
	for _, parameters := range []map[string]string{
		{"device": "sda", "mountPoint": "/boot"}, {"device": "sda"}, {"device": "sda2"}, {"device": "dm-0"}, {"deviceNumber": "8:0", "mountPoint": "/boot"},
	} {
		out, _ := operationtest.Succeed(t, CheckFilesystemReadonly(h), parameters)
		if v := out.Verdict; !strings.HasPrefix(v.Message, "ext4 on dm-0 at / refuses writes (read-only after errors)") || out.Results["device"] != "dm-0" {
			t.Errorf("%v: %+v %v", parameters, v, out.Results)
		}
		out, _ = operationtest.Succeed(t, CheckFilesystemErrors(h), parameters)
		if v := out.Verdict; !strings.HasPrefix(v.Message, "ext4 on dm-0 at /: 1 error") {
			t.Errorf("%v: %+v", parameters, v)
		}
	}
	// No mount is on these.
	for _, parameters := range []map[string]string{{"device": "sdb", "mountPoint": "/gone"}, {"device": "sdb"}, {"deviceNumber": "8:16"}} {
		if no := operationtest.Refuse(t, CheckFilesystemReadonly(h), parameters); !strings.Contains(no.Message, "no filesystem is mounted") {
			t.Errorf("%v: %+v", parameters, no)
		}
	}
	if no := operationtest.Refuse(t, CheckFilesystemReadonly(h), map[string]string{"device": "sda1"}); no.Message != "vfat on sda1 at /boot is not marked as read-only; this filesystem type records no errors" {
		t.Errorf("%+v", no)
	}
	// The root is still mounted when its disk is gone.
	if err := os.Remove(h.FS.Path("/sys/class/block/dm-0")); err != nil {
		t.Fatal(err)
	}
	out, _ := operationtest.Succeed(t, CheckFilesystemReadonly(h), map[string]string{"device": "dm-0", "deviceNumber": "254:0"})
	if !strings.HasPrefix(out.Verdict.Message, "ext4 on dm-0 at / refuses writes") {
		t.Errorf("%+v", out.Verdict)
	}
}

func TestUsedPercent(t *testing.T) {
	for _, c := range []struct {
		u            fsUsage
		bytes, files uint64
	}{
		{fsUsage{}, 0, 0},
		{fsUsage{size: 100, free: 100, available: 95, inodes: 10, inodesFree: 10}, 0, 0},
		{fsUsage{size: 100, free: 5, available: 0, inodes: 1000, inodesFree: 1}, 100, 100},
		{fsUsage{size: 100, free: 50, available: 45, inodes: 10, inodesFree: 5}, 53, 50},
	} {
		if b, i := c.u.usedPercent(), c.u.inodesUsedPercent(); b != c.bytes || i != c.files {
			t.Errorf("%+v: %d, %d", c.u, b, i)
		}
	}
}

func TestHealthyBtrfs(t *testing.T) {
	if b, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(b), "\tbtrfs\n") {
		t.Skip("no btrfs here")
	}
	d := disklab.New(t, 128<<20, "btrfs", "-q", "--mixed")
	h := operationtest.RealHost()
	for _, parameters := range []map[string]string{{"mountPoint": d.Dir}, {"device": d.Name}} {
		out, _ := operationtest.Succeed(t, Mounts(h), parameters)
		if r := out.Results; r["device"] != d.Name || r["fsType"] != "btrfs" || r["mountPoint"] != d.Dir {
			t.Errorf("%v", r)
		}
		if _, err := h.FS.BtrfsErrors(d.Name); err != nil { // older than 5.14
			t.Skip(err)
		}
		if out.Results["errors"] != "0" {
			t.Errorf("%v", out.Results)
		}
		if no := operationtest.Refuse(t, CheckFilesystemErrors(h), parameters); !strings.Contains(no.Message, "has no recorded errors") {
			t.Errorf("%+v", no)
		}
	}
	out, _ := operationtest.Succeed(t, DiskIdentity(h), map[string]string{"mountPoint": d.Dir})
	if r := out.Results; r["device"] != d.Name || r["mountPoint"] != d.Dir {
		t.Errorf("%v", r)
	}
}

// That no filesystem refuses writes is not known while one can't be examined.
func TestAFilesystemThatCanNotBeExamined(t *testing.T) {
	files := map[string]string{"/proc/1/mountinfo": "20 1 8:0 / /data rw - xfs /dev/sda rw\n21 1 8:16 / /boot rw - vfat /dev/sdb rw\n"}
	_, _, err := operationtest.Perform(t, CheckFilesystemReadonly(operationtest.HostOf(t, files)), nil) // there is no folder /data
	if _, no := errors.AsType[*operation.Refuted](err); err == nil || no || !strings.Contains(err.Error(), "check whether xfs on") {
		t.Errorf("%v", err)
	}
	files["/proc/1/mountinfo"] += "22 1 8:32 / /c rw,emergency_ro - ext4 /dev/sdc rw,emergency_ro\n"
	out, _ := operationtest.Succeed(t, CheckFilesystemReadonly(operationtest.HostOf(t, files)), nil)
	if out.Results["mountPoint"] != "/c" || !strings.Contains(out.Results["note"], "check whether xfs on") {
		t.Errorf("%+v %v", out.Verdict, out.Results)
	}
}
