package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// diskNode is a fixture node: LVM on two disks of different kinds, a degraded RAID, a virtual disk,
// and pods.
func diskNode(t *testing.T) operation.Host {
	t.Helper()
	serial := string([]byte{0, 0x80, 0, 8}) + "Z1D4ABCD"
	files := map[string]string{
		"/proc/1/mountinfo": "20 1 254:0 / /data rw - ext4 /dev/dm-0 rw\n" +
			"21 1 9:0 / /var/lib/kubelet/pods/0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60/volumes/kubernetes.io~csi/pvc-9/mount rw - ext4 /dev/md0 rw\n",
		"nvme1n1/dev": "259:1", "nvme1n1/size": "1953525168", "nvme1n1/device/model": "ACME  SSD 9000   ", "nvme1n1/device/serial": "S1",
		"nvme1n1/device/firmware_rev": "1.2", "nvme1n1/queue/rotational": "0", "nvme1n1/queue/scheduler": "[none] mq-deadline", "nvme1n1/device/state": "live",
		"nvme1n1/stat": "10 0 80 50 4 0 32 2 1 9 9", "nvme1n1/ro": "0", "nvme1n1/removable": "0", "nvme1n1/queue/nr_requests": "1023",
		"sda/dev": "8:0", "sda/size": "7814037168", "sda/device/model": "ST4000", "sda/device/vendor": "ATA", "sda/device/rev": "SN04",
		"sda/device/vpd_pg80": serial, "sda/queue/rotational": "1", "sda/device/state": "offline", "sda/device/ioerr_cnt": "0x1f",
		"sda/device/iotmo_cnt": "0x2", "sda/device/queue_depth": "32", "sda/device/subsystem": "-> ../../../bus/scsi", "sda/sda1/dev": "8:1", "sda/sda1/partition": "1",
		"vda/dev": "252:0", "vda/size": "100", "vda/serial": "overlay", "vda/device/subsystem": "-> ../../../bus/virtio",
		"dm-0/dev": "254:0", "dm-0/dm/name": "vg-data", "dm-0/slaves/nvme1n1": "-> ../../nvme1n1", "dm-0/slaves/sda1": "-> ../../sda/sda1", "dm-0/size": "5",
		"md0/dev": "9:0", "md0/md/level": "raid1", "md0/md/degraded": "1", "md0/slaves/sda1": "-> ../../sda/sda1", "md0/size": "5",
		"loop0/dev": "7:0", "loop0/size": "0",
		"/sys/class/nvme/nvme1/nvme1n1/size": "1953525168", "/sys/class/nvme/nvme1/ng1n1/dev": "241:0", "/sys/class/nvme/nvme1/state": "live",
		"/sys/class/nvme/nvme2/nvme1c2n1/size": "1953525168", // another path to nvme1n1
		"nvme1n1/holders/dm-0":                 "-> ../../dm-0", "sda/sda1/holders/dm-0": "-> ../../../dm-0", "sda/sda1/holders/md0": "-> ../../../md0",
	}
	tree := map[string]string{}
	for p, content := range files {
		if p[0] != '/' {
			p = "/sys/devices/" + p
		}
		tree[p] = content
	}
	for name, number := range map[string]string{"nvme1n1": "259:1", "sda": "8:0", "vda": "252:0", "dm-0": "254:0", "md0": "9:0", "loop0": "7:0", "sda/sda1": "8:1"} {
		base := name[strings.LastIndexByte(name, '/')+1:]
		tree["/sys/class/block/"+base] = "-> ../../devices/" + name
		tree["/sys/dev/block/"+number] = "-> ../../devices/" + name
		if base == name {
			tree["/sys/block/"+base] = "-> ../devices/" + name
		}
	}
	return operationtest.HostOf(t, tree)
}

func TestDiskIdentity(t *testing.T) {
	b := DiskIdentity(diskNode(t))
	for _, parameters := range []map[string]string{{"device": "dm-0"}, {"mountPoint": "/data/x"}, {"deviceNumber": "254:0"}} {
		out, kept := operationtest.Succeed(t, b, parameters)
		for key, want := range map[string]string{
			"device": "dm-0", "stack": "dm-0 (vg-data) > nvme1n1 > sda1 > sda", "disks": "nvme1n1 sda", "disk": "nvme1n1", "kind": "nvme", "model": "ACME SSD 9000",
			"serial": "S1", "firmware": "1.2", "sizeBytes": "1000204886016", "rotational": "false", "scheduler": "none", "queueRequests": "1023",
			"affectedPods": "1", "volumes": "pvc-9", "mountPoint": "/data",
		} {
			if out.Results[key] != want {
				t.Errorf("%v: %s is %q, want %q", parameters, key, out.Results[key], want)
			}
		}
		if text := kept.Files["disks.txt"]; !strings.Contains(text, `sda kind="scsi" model="ST4000" vendor="ATA" serial="Z1D4ABCD" firmware="SN04"`) {
			t.Errorf("disks.txt: %s", text)
		}
	}
	out, _ := operationtest.Succeed(t, b, map[string]string{"device": "vda"})
	if r := out.Results; r["kind"] != "virtio" || r["serial"] != "overlay" || r["affectedPods"] != "0" {
		t.Errorf("%v", r)
	}
	for _, parameters := range []map[string]string{{}, {"device": "sdz"}, {"deviceNumber": "1:1"}, {"deviceNumber": "x"}, {"mountPoint": "/elsewhere"}} {
		if _, _, err := operationtest.Perform(t, b, parameters); err == nil {
			t.Errorf("%v", parameters)
		}
	}
}

func TestDiskIdentityOfThisMachine(t *testing.T) {
	d := disklab.NewExt4(t, 8<<20)
	out, _ := operationtest.Succeed(t, DiskIdentity(operationtest.RealHost()), map[string]string{"mountPoint": d.Dir})
	if r := out.Results; r["device"] != d.Name || r["kind"] != "loop" || r["sizeBytes"] != strconv.Itoa(8<<20) || r["mountPoint"] != d.Dir || r["backingFile"] == "" {
		t.Errorf("%v", r)
	}
	disks, err := host{Host: operationtest.RealHost()}.allHardware()
	if err != nil {
		t.Fatal(err)
	}
	for _, disk := range disks {
		out, _ := operationtest.Succeed(t, DiskIdentity(operationtest.RealHost()), map[string]string{"device": disk})
		t.Log(out.Results)
		out, _ = operationtest.Succeed(t, Smart(operationtest.RealHost()), map[string]string{"device": disk})
		t.Log(out.Results)
		if out.Results["readable"] == "false" && out.Results["reason"] == "" {
			t.Errorf("%v", out.Results)
		}
	}
}

func TestDiskErrors(t *testing.T) {
	h := diskNode(t)
	out, kept := operationtest.Succeed(t, DiskErrors(h), nil)
	t.Log(out.Results)
	for key, want := range map[string]string{
		"disk": "sda", "disks": "nvme1n1 sda vda", "state": "offline", "ioErrors": "31", "ioTimeouts": "2", "degradedArrays": "md0 (raid1) is missing 1",
	} {
		if out.Results[key] != want {
			t.Errorf("%s is %q, want %q", key, out.Results[key], want)
		}
	}
	if _, reported := out.Results["logErrors"]; reported || !strings.Contains(out.Results["note"], "kernel log") {
		t.Errorf("without a log: %v", out.Results)
	}
	if text := kept.Files["disk-errors.txt"]; !strings.Contains(text, `nvme1n1 state="live"`) || !strings.Contains(text, "reads 10 writes 4") {
		t.Errorf("disk-errors.txt: %s", text)
	}
	out, _ = operationtest.Succeed(t, DiskErrors(h), map[string]string{"device": "254:0"}) // as in log lines of device-mapper
	if out.Results["disks"] != "nvme1n1 sda" {
		t.Errorf("%v", out.Results)
	}
	out, _ = operationtest.Succeed(t, DiskErrors(h), map[string]string{"device": "nvme1n1"})
	if r := out.Results; r["averageReadMillis"] != "5.00" || r["averageWriteMillis"] != "0.50" || r["inFlight"] != "1" {
		t.Errorf("%v", r)
	}

	b := CheckDiskFailing(h)
	out, _ = operationtest.Succeed(t, b, nil)
	t.Log(out.Verdict.Message)
	want := "sda (ST4000 Z1D4ABCD): its driver has given up on it (state offline); at /data and 1 more mount; pod 0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60; volume pvc-9"
	if v := out.Verdict; v.Reason != "DiskFailing" || v.Message != want || out.Results["failingDisks"] != "sda" {
		t.Errorf("%+v %v", v, out.Results)
	}
	no := operationtest.Refuse(t, b, map[string]string{"device": "nvme1n1"})
	if no.Reason != "NoDiskFailing" || !strings.Contains(no.Message, "state live") || !strings.Contains(no.Message, "can't read the kernel log") {
		t.Errorf("%+v", no)
	}
	_, _, err := operationtest.Perform(t, b, map[string]string{"device": "vda"})
	if no, ok := errors.AsType[*operation.Refuted](err); err == nil || ok || !strings.Contains(err.Error(), "kind virtio has no health log") {
		t.Errorf("of which nothing tells: %+v, %v", no, err)
	}
}

// The kernel log names the controller of an NVMe disk, or one path to it.
func TestNVMeController(t *testing.T) {
	h := diskNode(t)
	for _, name := range []string{"nvme1", "nvme2", "nvme1c2n1"} {
		parameters := map[string]string{"device": name}
		out, _ := operationtest.Succeed(t, DiskErrors(h), parameters)
		if r := out.Results; r["disk"] != "nvme1n1" || r["disks"] != "nvme1n1" || r["state"] != "live" || r["reads"] != "10" {
			t.Errorf("%s: %v", name, r)
		}
		if no := operationtest.Refuse(t, CheckDiskFailing(h), parameters); !strings.HasPrefix(no.Message, "nvme1n1: state live") {
			t.Errorf("%s: %+v", name, no)
		}
		out, _ = operationtest.Succeed(t, DiskIdentity(h), parameters)
		if r := out.Results; r["stack"] != "nvme1n1" || r["serial"] != "S1" || r["mountPoint"] != "/data" {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// kernelLog returns the content of /dev/kmsg with a line of this moment.
func kernelLog(t *testing.T, line string) string {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("3,1,%d,-;%s\n", now.Nano()/1000, line)
}

// keepKernelLog has the node's /dev/kmsg return lines of this moment once, each in its own read.
func keepKernelLog(t *testing.T, h operation.Host, lines ...string) {
	t.Helper()
	path := h.FS.Path("/dev/kmsg")
	operationtest.Mkfifo(t, path)
	log, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	if _, err := unix.FcntlInt(log.Fd(), unix.F_SETFL, unix.O_DIRECT); err != nil { // a read returns one write
		t.Fatal(err)
	}
	for _, line := range lines {
		if _, err := log.WriteString(kernelLog(t, line)); err != nil {
			t.Fatal(err)
		}
	}
}

// wantErrors checks the kinds of errors of a disk in the kernel's log.
func wantErrors(t *testing.T, device string, lines []string, want string) {
	t.Helper()
	h := operationtest.HostOf(t, map[string]string{"/dev/null": ""})
	keepKernelLog(t, h, lines...)
	out, _ := operationtest.Succeed(t, DiskErrors(h), map[string]string{"device": device})
	if got := out.Results["logErrorKinds"]; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An attached disk may get the name of a removed one. Its log begins with the line of its capacity,
// which the kernel also logs when a disk is resized.
func TestErrorsOfAnEarlierDisk(t *testing.T) {
	const (
		ioError  = "I/O error, dev sdb, sector 1 op 0x0:(READ) flags 0x0"
		medium   = "critical medium error, dev sdb, sector 0 op 0x0:(READ) flags 0x0"
		others   = "critical target error, dev sdc, sector 0"
		capacity = "sd 2:0:0:0: [sdb] 7814037168 512-byte logical blocks: (4.00 TB/3.64 TiB)"
		attached = "sd 2:0:0:0: [sdb] Attached SCSI disk"
	)
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"an earlier disk":              {[]string{ioError, capacity, medium, attached}, "critical medium=1"},
		"a healthy disk":               {[]string{ioError, medium, capacity, attached}, ""},
		"several disks":                {[]string{capacity, ioError, attached, medium, capacity, attached, ioError, ioError}, "I/O=2"},
		"a removable disk":             {[]string{ioError, capacity, medium, "sd 2:0:0:0: [sdb] Attached SCSI removable disk"}, "critical medium=1"},
		"a resize":                     {[]string{capacity, attached, ioError, capacity, medium}, "I/O=1 critical medium=1"},
		"resized and removed":          {[]string{ioError, capacity, ioError, capacity, medium, attached}, "critical medium=1"},
		"an attach without a capacity": {[]string{capacity, attached, ioError, "sd 2:0:0:0: [sdb] Attached SCSI removable disk"}, "I/O=1"},
		"another disk's attach":        {[]string{ioError, capacity, others, "sd 3:0:0:0: [sdc] Attached SCSI disk"}, "I/O=1"},
	} {
		t.Run(name, func(t *testing.T) {
			wantErrors(t, "sdb", c.lines, c.want)
		})
	}
}

// The line of a virtio disk's capacity is logged once, before the disk is attached; a resize has
// another line.
func TestErrorsOfAnEarlierVirtioDisk(t *testing.T) {
	const (
		ioError  = "I/O error, dev vdb, sector 1 op 0x0:(READ) flags 0x0"
		attached = "virtio_blk virtio3: [vdb] 20971520 512-byte logical blocks (10.7 GB/10.0 GiB)"
		others   = "virtio_blk virtio4: [vdc] 20971520 512-byte logical blocks (10.7 GB/10.0 GiB)"
		resized  = "virtio_blk virtio3: [vdb] new size: 41943040 512-byte logical blocks (21.5 GB/20.0 GiB)"
	)
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"an earlier disk": {[]string{ioError, ioError, attached, ioError}, "I/O=1"},
		"a healthy disk":  {[]string{attached, ioError, attached}, ""},
		"a resize":        {[]string{attached, ioError, resized}, "I/O=1"},
		"another disk":    {[]string{attached, ioError, others}, "I/O=1"},
	} {
		t.Run(name, func(t *testing.T) {
			wantErrors(t, "vdb", c.lines, c.want)
		})
	}
}

// A disk that is removed after its first error has only that error in the log.
func TestRemovedDisk(t *testing.T) {
	h := operationtest.HostOf(t, map[string]string{"/dev/kmsg": kernelLog(t, "critical medium error, dev sdz, sector 1")})
	for _, name := range []string{"sdz", "nvme7"} {
		out, _ := operationtest.Succeed(t, DiskErrors(h), map[string]string{"device": name})
		want := map[string]string{"sdz": "1", "nvme7": "0"}[name]
		if r := out.Results; r["disk"] != name || r["logErrors"] != want || !strings.Contains(r["note"], "this node has no device "+name) {
			t.Errorf("%v", r)
		}
	}
	out, _ := operationtest.Succeed(t, DiskErrors(h), map[string]string{"deviceNumber": "65:144"})
	if !strings.Contains(out.Results["note"], "this node has no device 65:144") {
		t.Errorf("%v", out.Results)
	}
	out, _ = operationtest.Succeed(t, CheckDiskFailing(h), map[string]string{"device": "sdz"})
	if !strings.HasPrefix(out.Verdict.Message, "sdz: 1 failed request in the kernel log within 1h0m0s, 1 of them medium errors") {
		t.Errorf("%+v", out.Verdict)
	}
	// Missing data does not clear the disk.
	_, _, err := operationtest.Perform(t, CheckDiskFailing(h), map[string]string{"device": "nvme7"})
	if _, no := errors.AsType[*operation.Refuted](err); err == nil || no || !strings.Contains(err.Error(), "nothing reports the health of nvme7: this node has no such device") {
		t.Errorf("%v", err)
	}
}

// For a multipath NVMe disk the block layer logs the hidden path.
func TestErrorsOfAPath(t *testing.T) {
	h := operationtest.HostOf(t, map[string]string{
		"/dev/kmsg":                kernelLog(t, "I/O error, dev nvme0c1n2, sector 1 op 0x0:(READ) flags 0x0"),
		"/sys/devices/nvme0n2/dev": "259:7",
		"/sys/class/block/nvme0n2": "-> ../../devices/nvme0n2",
		"/sys/dev/block/259:7":     "-> ../../devices/nvme0n2",
		"/proc/1/mountinfo":        "",
		"/sys/block/nvme0n2":       "-> ../devices/nvme0n2",
	})
	out, _ := operationtest.Succeed(t, DiskErrors(h), map[string]string{"device": "nvme0n2"})
	if r := out.Results; r["logErrors"] != "1" || r["logErrorKinds"] != "I/O=1" {
		t.Errorf("%v", r)
	}
}

// Real failed requests, as logged by the kernel.
func TestFailingDiskOfTheKernel(t *testing.T) {
	operationtest.NeedRoot(t)
	if _, err := os.Stat("/dev/kmsg"); err != nil {
		t.Skip(err)
	}
	fault := &inject.DiskError{Kind: inject.DiskWrite, StateDir: t.TempDir(), Limit: time.Minute}
	if err := fault.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := fault.Close(); err != nil {
			t.Error(err)
		}
	}()
	name, dir := fault.Device()
	parameters := map[string]string{"device": name, "maxAge": "1m"}
	before, _ := operationtest.Succeed(t, DiskErrors(operationtest.RealHost()), parameters)
	was := operationtest.Number(t, before, "logErrors")
	var out operation.Output
	testenv.Until(t, "three failed requests are in the log", 20*time.Second, func() bool {
		// The kernel logs ten errors of all disks in five seconds, and drops the others.
		if _, _, err := fault.Fail(); err != nil {
			t.Fatal(err)
		}
		out, _ = operationtest.Succeed(t, DiskErrors(operationtest.RealHost()), parameters)
		return operationtest.Number(t, out, "logErrors") >= was+3
	})
	t.Log(out.Results)
	if r := out.Results; r["disk"] != name || !strings.Contains(r["logErrorKinds"], "I/O=") || !strings.Contains(r["lastLogError"], "dev "+name) {
		t.Errorf("%v", r)
	}
	out, _ = operationtest.Succeed(t, CheckDiskFailing(operationtest.RealHost()), parameters)
	t.Log(out.Verdict.Message)
	if v := out.Verdict; v.Reason != "DiskFailing" || !strings.HasPrefix(v.Message, name+": ") || !strings.Contains(v.Message, "failed requests in the kernel log within 1m0s (I/O=") || !strings.Contains(v.Message, "; at "+dir) {
		t.Errorf("%+v", v)
	}
	parameters["minErrors"] = "100000"
	if no := operationtest.Refuse(t, CheckDiskFailing(operationtest.RealHost()), parameters); no.Reason != "NoDiskFailing" {
		t.Errorf("%+v", no)
	}
}

func TestDiskErrorLines(t *testing.T) {
	form := diskErrorLine()
	for line, want := range map[string]string{
		"I/O error, dev loop0, sector 56 op 0x0:(READ) flags 0x800 phys_seg 1 prio class 3":                                "I/O loop0",
		"blk_update_request: I/O error, dev sda, sector 2048 op 0x1:(WRITE) flags 0x0":                                     "I/O sda",
		"print_req_error: critical medium error, dev sdb, sector 1":                                                        "critical medium sdb",
		"critical space allocation error, dev dm-3, sector 8":                                                              "critical space allocation dm-3",
		"blk_update_request: I/O error, dev nvme0n1, sector 0":                                                             "I/O nvme0n1",
		"timeout error, dev nvme0n1, sector 7 op 0x0:(READ)":                                                               "timeout nvme0n1",
		"Buffer I/O error on dev loop0, logical block 0, lost async page write":                                            "",
		"EXT4-fs error (device sda1): ext4_lookup:1855: inode #2: comm ls: deleted inode referenced: 12, I/O error, dev x": "",
	} {
		got := ""
		if m := form.FindStringSubmatch(line); m != nil {
			got = m[1] + " " + m[2]
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	d := diskLog{kinds: map[string]int{"I/O": 2, "critical medium": 1, "critical space allocation": 5, "recoverable transport": 7, "timeout": 1}}
	if d.bad() != 4 || d.String() != "I/O=2 critical medium=1 critical space allocation=5 recoverable transport=7 timeout=1" {
		t.Errorf("%d %s", d.bad(), d.String())
	}
}

func TestNVMeFindings(t *testing.T) {
	page := make([]byte, 512)
	page[0], page[3], page[4], page[5] = 1|4|8, 3, 10, 120
	binary.LittleEndian.PutUint64(page[160:], 2)
	binary.LittleEndian.PutUint64(page[120:], 1) // the upper half of a counter
	health, err := hostfs.ParseNVMeHealth(page)
	if err != nil {
		t.Fatal(err)
	}
	f := operation.NewFinding()
	reportNvme(f, &health)
	if r := f.Results; r["warnings"] != "spare reliability read-only" || r["usedPercent"] != "120" || r["mediaErrors"] != "2" || !strings.HasPrefix(r["powerCycles"], "more than") {
		t.Errorf("%v", r)
	}
	d := &failingDisk{diskHealth: &diskHealth{name: "nvme0n1"}}
	d.judgeNVMe(&health)
	want := "[spare blocks at 3 %, threshold 10 % its controller warns that it is no longer reliable its controller has made it read-only 2 media errors]"
	if got := fmt.Sprint(d.signs); got != want {
		t.Errorf("%s", got)
	}
}
