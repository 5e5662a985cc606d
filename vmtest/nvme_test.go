package vmtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// nvmeDisk is an NVMe disk with two paths: the kernel's own target exports a device through two
// ports, and the kernel connects to both over TCP. The disk (nvme0n1) passes its bios to the hidden
// disk of a path (nvme0c1n1), which makes requests of them.
type nvmeDisk struct {
	blockDevice
	controllers []string // in /sys/class/nvme
	exports     []string // links in configfs that make the ports accept connections
}

// newNVMeDisk exports a device through two TCP ports, and removes all at the end of the test.
func newNVMeDisk(t *testing.T, name string, port int, backing blockDevice) nvmeDisk {
	t.Helper()
	needConfig(t, "CONFIG_NVME_MULTIPATH")
	module(t, "CONFIG_NVME_TARGET_TCP", "nvmet_tcp")
	module(t, "CONFIG_NVME_TCP", "nvme_tcp")
	nqn := "nqn.2026-01.test.kernosis:" + name
	subsystem := configFolder(t, "nvmet/subsystems/"+nqn)
	writeAttribute(t, subsystem+"/attr_allow_any_host", "1")
	namespace := configFolder(t, "nvmet/subsystems/"+nqn+"/namespaces/1")
	writeAttribute(t, namespace+"/device_path", backing.path())
	writeAttribute(t, namespace+"/enable", "1")
	var d nvmeDisk
	for i := range 2 {
		number := strconv.Itoa(port + i)
		dir := configFolder(t, "nvmet/ports/"+number)
		for _, attr := range [][2]string{{"addr_trtype", "tcp"}, {"addr_adrfam", "ipv4"}, {"addr_traddr", "127.0.0.1"}, {"addr_trsvcid", number}} {
			writeAttribute(t, filepath.Join(dir, attr[0]), attr[1])
		}
		export := filepath.Join(dir, "subsystems", nqn)
		if err := os.Symlink(subsystem, export); err != nil {
			t.Fatal(err)
		}
		atEnd(t, func() error { return removed(export) })
		d.exports = append(d.exports, export)
		d.controllers = append(d.controllers, connectNVMe(t, nqn, number))
	}
	d.blockDevice = findDevice(t, "NVMe disk "+name, func(dir string) bool { return attribute(dir+"/device/subsysnqn") == nqn })
	eventually(t, "both paths to "+d.name, 30*time.Second, func() bool { return len(d.paths(t)) == 2 })
	// Otherwise only one path would be used.
	writeAttribute(t, "/sys/block/"+d.name+"/device/iopolicy", "round-robin")
	d.checkBioBased(t)
	return d
}

// removed removes a file, which may be gone already.
func removed(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// connectNVMe connects to a subsystem until the end of the test, and returns the controller.
func connectNVMe(t *testing.T, nqn, port string) (controller string) {
	t.Helper()
	f, err := os.OpenFile("/dev/nvme-fabrics", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The keep-alive of 5 s is too short for a busy machine.
	if _, err := fmt.Fprintf(f, "transport=tcp,traddr=127.0.0.1,trsvcid=%s,nqn=%s,nr_io_queues=1,keep_alive_tmo=600", port, nqn); err != nil {
		t.Fatalf("connect to %s: %v", nqn, err)
	}
	var instance, id int
	if _, err := fmt.Fscanf(f, "instance=%d,cntlid=%d", &instance, &id); err != nil {
		t.Fatalf("controller of %s: %v", nqn, err)
	}
	controller = "/sys/class/nvme/nvme" + strconv.Itoa(instance)
	t.Cleanup(func() { deleteController(t, controller) })
	return controller
}

func deleteController(t *testing.T, controller string) {
	t.Helper()
	if _, err := os.Stat(controller); err == nil {
		writeAttribute(t, controller+"/delete_controller", "1") // returns when it is gone
	}
}

// paths returns the disk's hidden disks.
func (d nvmeDisk) paths(t *testing.T) (paths []string) {
	t.Helper()
	for _, c := range d.controllers {
		found, err := filepath.Glob(c + "/nvme*c*n*")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			paths = append(paths, filepath.Base(path))
		}
	}
	return paths
}

// checkBioBased requires that the disk, but not its paths, counts as bio-based.
func (d nvmeDisk) checkBioBased(t *testing.T) {
	t.Helper()
	names, err := hostfs.New("/").BioBased()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, d.name) {
		t.Errorf("bio-based devices are %q, want %s too", names, d.name)
	}
	for _, path := range d.paths(t) {
		if slices.Contains(names, path) {
			t.Errorf("%s is bio-based", path)
		}
	}
}

// losePaths makes requests fail in the disk itself, for lack of a path.
func (d nvmeDisk) losePaths() {
	d.t.Helper()
	for _, c := range d.controllers {
		if _, err := os.Stat(c + "/fast_io_fail_tmo"); err == nil {
			writeAttribute(d.t, c+"/fast_io_fail_tmo", "0")
		} else {
			// Before v5.11 (8c4dfea97f15) requests waited for as long as there were controllers,
			// and the disk outlasted them while it was open.
			deleteController(d.t, c)
		}
	}
	for _, export := range d.exports {
		if err := removed(export); err != nil {
			d.t.Fatal(err)
		}
	}
}

// nvmePath is an NVMe disk with a filesystem, and bad blocks that both paths report.
func (l *diskLab) nvmePath(t *testing.T) *diskFault {
	t.Helper()
	backing := newNullDisk(t, "nvme", 32, "memory_backed=1")
	return l.badFile(t, "ext4", newNVMeDisk(t, "path", 4420, backing.blockDevice).blockDevice, backing)
}

// nvmeWithoutPath is an NVMe disk that loses its paths before the first request that is to fail.
func (l *diskLab) nvmeWithoutPath(t *testing.T) *diskFault {
	t.Helper()
	d := newNVMeDisk(t, "no-path", 4430, newNullDisk(t, "nvme-lost", 16).blockDevice)
	l.awaitBio(t)
	f := deviceFault(d.blockDevice, unix.O_DIRECT, "read", blockSize, 0, 8, 16, 24)
	f.bio = true
	succeed, fail, lost := f.succeed, f.fail, false
	f.succeed = func() error {
		if lost { // no request succeeds any more
			return nil
		}
		return succeed()
	}
	f.fail = func() (uint64, error) {
		if !lost {
			d.losePaths()
			lost = true
		}
		return fail()
	}
	return f
}

// checkNoPaths requires that no error was reported for a hidden path of an NVMe disk.
func (l *diskLab) checkNoPaths(t *testing.T) {
	t.Helper()
	for _, ev := range agenttest.Events(l.agent.Entries(), event.DiskIO) {
		if hostfs.IsNVMePath(ev.Device.Name) {
			t.Errorf("an error of the path %s: %+v", ev.Device.Name, *ev.DiskIO)
		}
	}
}
