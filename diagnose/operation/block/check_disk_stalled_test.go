package block

import (
	"errors"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestCheckDiskStalledOfTheKernel(t *testing.T) {
	d := disklab.NewExt4(t, 32<<20)
	upper := d.Upper()
	name := filepath.Base(upper)
	b := CheckDiskStalled(operationtest.RealHost())
	short := map[string]string{"device": name, "window": "200ms"}
	if no := operationtest.Refuse(t, b, short); no.Reason != "NoDiskStalled" || !strings.Contains(no.Message, name) {
		t.Errorf("idle: %+v", no)
	}
	thaw := d.Freeze()
	writer := hangingWrite(t, thaw, "of="+upper, "oflag=direct", "conv=notrunc")
	out, _ := operationtest.Succeed(t, b, short)
	t.Logf("%+v %v", *out.Verdict, out.Results)
	long := regexp.MustCompile("^" + name + `: 1 in flight, none done in ([2-9]00ms|[1-9][0-9.]*s)$`) // at least the window
	if v := out.Verdict; v.Reason != "DiskStalled" || !long.MatchString(v.Message) {
		t.Errorf("%+v", v)
	}
	if out.Results["device"] != name || out.Results["inFlight"] != "1" {
		t.Errorf("%v", out.Results)
	}
	out, _ = operationtest.Succeed(t, b, map[string]string{"window": "200ms"})
	if !strings.Contains(out.Results["stalledDevices"], name) {
		t.Errorf("any disk: %v", out.Results)
	}

	// A task that waits for a lock is attributed to this disk only if the lock's holder may wait
	// for the disk.
	hang := &inject.HungTask{Limit: time.Minute}
	tasks, err := hang.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer hang.Close()
	locked := map[string]string{
		"window": "200ms", "waitsFor": hostfs.WaitLock, "pid": strconv.Itoa(tasks.Waiter.TID), "comm": tasks.Waiter.Comm,
		"holderPID": strconv.Itoa(tasks.Holder.TID),
	}
	if no := operationtest.Refuse(t, b, locked); no.Reason != "NoDiskStalled" || !strings.Contains(no.Message, "its holder "+tasks.Holder.Comm) {
		t.Errorf("its holder waits for no disk: %+v", no)
	}
	locked["holderPID"] = strconv.Itoa(writer)
	operationtest.Succeed(t, b, locked)

	// It agrees with the writer's stack.
	blocked, kept := operationtest.Succeed(t, BlockedStacks(operationtest.RealHost()), map[string]string{"pid": strconv.Itoa(writer)})
	if blocked.Results["waitsFor"] != hostfs.WaitDisk {
		t.Errorf("the writer: %v\n%s", blocked.Results, kept.Files["stacks.txt"])
	}
	thaw()
	testenv.Until(t, "the disk goes on", 20*time.Second, func() bool {
		_, _, err := operationtest.Perform(t, b, short)
		return err != nil
	})
}

// A fixture node: LVM on a partition of a disk that completes nothing, with a pod's volume on it.
func TestCheckDiskStalledOfAStack(t *testing.T) {
	const stalled = " 1 0 8 1 1 0 8 1 14 1 1 0 0 0 0 0 0\n"
	const pod = "/var/lib/kubelet/pods/0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60/volumes/kubernetes.io~csi/pvc-1/mount"
	files := map[string]string{
		"/proc/1/mountinfo": "20 1 254:0 / / rw - ext4 /dev/dm-0 rw\n21 20 254:0 /d /data rw - ext4 /dev/dm-0 rw\n22 20 254:0 /v " + pod + " rw - ext4 /dev/dm-0 rw\n",
		// Paths of devices, and the links to them in sysfs.
		"/sys/devices/nvme1n1/dev": "259:1\n", "/sys/devices/nvme1n1/stat": stalled, "/sys/devices/nvme1n1/queue/iostats": "1\n",
		"/sys/devices/nvme1n1/nvme1n1p1/dev": "259:2\n", "/sys/devices/nvme1n1/nvme1n1p1/partition": "1\n",
		"/sys/devices/nvme1n1/nvme1n1p1/holders/dm-0": "-> ../../../dm-0",
		"/sys/devices/dm-0/dev":                       "254:0\n", "/sys/devices/dm-0/stat": strings.Replace(stalled, "14", "15", 1),
		"/sys/devices/dm-0/slaves/nvme1n1p1": "-> ../../nvme1n1/nvme1n1p1",
		"/sys/devices/sdb/dev":               "8:16\n", "/sys/devices/sdb/stat": strings.Replace(stalled, "14", "0", 1),
		"/sys/devices/sdc/dev": "8:32\n", "/sys/devices/sdc/stat": stalled, "/sys/devices/sdc/queue/iostats": "0\n",
		"/sys/block/nvme1n1": "-> ../devices/nvme1n1", "/sys/block/dm-0": "-> ../devices/dm-0", "/sys/block/sdb": "-> ../devices/sdb",
		"/sys/class/block/nvme1n1": "-> ../../devices/nvme1n1", "/sys/class/block/nvme1n1p1": "-> ../../devices/nvme1n1/nvme1n1p1",
		"/sys/class/block/dm-0": "-> ../../devices/dm-0", "/sys/class/block/sdb": "-> ../../devices/sdb", "/sys/class/block/sdc": "-> ../../devices/sdc",
		"/sys/dev/block/259:1": "-> ../../devices/nvme1n1", "/sys/dev/block/259:2": "-> ../../devices/nvme1n1/nvme1n1p1",
		"/sys/dev/block/254:0": "-> ../../devices/dm-0", "/sys/dev/block/8:16": "-> ../../devices/sdb",
		"/sys/class/nvme/nvme1/nvme1n1/size": "1953525168", // the controller
		// A path to the disk, hidden: without a number.
		"/sys/devices/nvme1c0n1/stat": strings.Replace(stalled, "14", "16", 1), "/sys/block/nvme1c0n1": "-> ../devices/nvme1c0n1",
	}
	b := CheckDiskStalled(operationtest.HostOf(t, files))
	window := regexp.MustCompile(`none done in [^;]+`) // on a busy machine longer than it was to be
	for _, device := range []string{"", "dm-0", "nvme1n1p1", "nvme1n1", "nvme1"} {
		parameters := map[string]string{"window": "1ms"}
		if device != "" {
			parameters["device"] = device
		}
		out, _ := operationtest.Succeed(t, b, parameters)
		want := "nvme1n1: 14 in flight, none done; at / and 2 more mounts; pod 0f6d5b2e-7c1a-4e0b-9a53-2f1c8e4d7b60; volume pvc-1"
		if window.ReplaceAllString(out.Verdict.Message, "none done") != want || out.Results["deviceNumber"] != "259:1" || out.Results["affectedPods"] != "1" {
			t.Errorf("%q: %+v %v", device, *out.Verdict, out.Results)
		}
	}
	// The verdict also reports the waiter from blocked-stacks if it waits for this device.
	waiter := map[string]string{"window": "1ms", "device": "dm-0", "pid": "811", "comm": "pg", "waitsFor": "disk", "blockedFor": "2m11.4s"}
	out, _ := operationtest.Succeed(t, b, waiter)
	if !strings.HasPrefix(window.ReplaceAllString(out.Verdict.Message, "none done"), "nvme1n1: 14 in flight, none done; pg[811] has waited for 2m11s; at /") {
		t.Errorf("%+v", *out.Verdict)
	}
	waiter["waitsFor"] = "lock"
	if out, _ = operationtest.Succeed(t, b, waiter); strings.Contains(out.Verdict.Message, "pg[811]") {
		t.Errorf("%+v", *out.Verdict)
	}
	if no := operationtest.Refuse(t, b, map[string]string{"window": "1ms", "device": "sdb"}); !strings.Contains(no.Message, "sdb") {
		t.Errorf("%+v", no)
	}
	for _, device := range []string{"sdz", "../x"} {
		if no := operationtest.Refuse(t, b, map[string]string{"window": "1ms", "device": device}); no.Message != "this node has no device "+device+" (any more)" {
			t.Errorf("%s: %+v", device, no)
		}
	}
	if _, _, err := operationtest.Perform(t, b, map[string]string{"window": "1ms", "device": "sdc"}); err == nil || !strings.Contains(err.Error(), "iostats") {
		t.Errorf("sdc: %v", err)
	}
}

// A disk that is removed while it is observed.
func TestCheckDiskStalledOfARemovedDisk(t *testing.T) {
	h := host{operationtest.HostOf(t, map[string]string{"/sys/block/sdb/stat": " 1 0 8 1 1 0 8 1 0 1 1 0 0 0 0 0 0\n"}), operation.NewPatience()}
	seen, unread, gone := h.diskStats([]string{"sda", "sdb"})
	if len(seen) != 1 || len(unread) != 0 || len(gone) != 1 || gone[0] != "sda" {
		t.Errorf("%v, unread %v, gone %v", seen, unread, gone)
	}
	for want, err := range map[string]error{
		"NoDiskStalled: removed meanwhile: sda":                                                notStalled(nil, gone, nil, nil, time.Second),
		"NoDiskStalled: sdb observed for 1s: no I/O in flight; removed meanwhile: sda":         notStalled([]string{"sdb"}, gone, nil, nil, time.Second),
		"sdb observed for 1s: no I/O in flight; removed meanwhile: sda; not examined: sdc (x)": notStalled([]string{"sdb"}, gone, []string{"sdc (x)"}, nil, time.Second),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// Where no disk can be seen, none is known to be gone.
func TestCheckDiskStalledWithoutSysfs(t *testing.T) {
	for _, device := range []string{"", "sda"} {
		_, _, err := operationtest.Perform(t, CheckDiskStalled(operationtest.HostOf(t, nil)), map[string]string{"window": "1ms", "device": device})
		if _, no := errors.AsType[*operation.Refuted](err); err == nil || no {
			t.Errorf("%q: %v", device, err)
		}
	}
}

// Without the counters of all disks, it is not known that none stalls.
func TestCheckDiskStalledWithoutCounters(t *testing.T) {
	const idle = " 1 0 8 1 1 0 8 1 0 1 1 0 0 0 0 0 0\n"
	files := map[string]string{
		"/sys/devices/sdc/dev": "8:32\n", "/sys/devices/sdc/stat": idle, "/sys/devices/sdc/queue/iostats": "0\n",
		"/sys/block/sdc": "-> ../devices/sdc", "/sys/class/block/sdc": "-> ../../devices/sdc",
	}
	parameters := map[string]string{"window": "1ms"}
	_, _, err := operationtest.Perform(t, CheckDiskStalled(operationtest.HostOf(t, files)), parameters)
	if _, no := errors.AsType[*operation.Refuted](err); err == nil || no || !strings.Contains(err.Error(), "iostats") {
		t.Errorf("only sdc: %v", err)
	}
	files["/sys/devices/sdb/dev"], files["/sys/devices/sdb/stat"], files["/sys/devices/sdb/queue/iostats"] = "8:16\n", idle, "1\n"
	files["/sys/block/sdb"], files["/sys/class/block/sdb"] = "-> ../devices/sdb", "-> ../../devices/sdb"
	for content, want := range map[string]string{idle: "sdc (queue/iostats is 0)", "x": "sdb (parse "} {
		files["/sys/devices/sdb/stat"] = content
		_, _, err = operationtest.Perform(t, CheckDiskStalled(operationtest.HostOf(t, files)), parameters)
		if _, no := errors.AsType[*operation.Refuted](err); err == nil || no || !strings.Contains(err.Error(), "not examined: sdc (queue/iostats is 0)") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
	// A zram without counters is memory.
	files["/sys/devices/sdb/stat"], files["/sys/devices/sdc/queue/iostats"] = idle, "1\n"
	files["/sys/devices/zram0/dev"], files["/sys/devices/zram0/stat"], files["/sys/devices/zram0/queue/iostats"] = "251:0\n", idle, "0\n"
	files["/sys/block/zram0"], files["/sys/class/block/zram0"] = "-> ../devices/zram0", "-> ../../devices/zram0"
	_, _, err = operationtest.Perform(t, CheckDiskStalled(operationtest.HostOf(t, files)), parameters)
	if _, no := errors.AsType[*operation.Refuted](err); !no {
		t.Errorf("beside a zram: %v", err)
	}
}
