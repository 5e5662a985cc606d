package inject_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestDiskError(t *testing.T) {
	// Fields of /sys/block/DEV/stat: requests completed, failed ones included.
	const reads, writes = 0, 4
	for _, tc := range []struct {
		kind   inject.DiskKind
		column int
		want   []error
	}{
		{inject.DiskWrite, writes, []error{syscall.EIO}},
		{inject.DiskRead, reads, []error{syscall.EIO}},
		{inject.DiskFull, writes, []error{syscall.ENOSPC, syscall.EIO}}, // the latter on older kernels
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			d := &inject.DiskError{StateDir: stateDir(t), Kind: tc.kind}
			if err := d.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			device, dir := d.Device()
			if b, _ := os.ReadFile("/proc/self/mountinfo"); !strings.Contains(string(b), " "+dir+" ") || !strings.Contains(string(b), " /dev/"+device+" ") {
				t.Errorf("%s is not mounted on %s", device, dir)
			}
			const want = 71 // prime, and more than the number of blocks
			before := requests(t, device, tc.column)
			for range want {
				sector, ioErr, err := d.Fail()
				if ioErr == nil && tc.kind == inject.DiskRead {
					t.Skip("a loop device over a file that became shorter reads zeros before 6.12")
				}
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(tc.want, func(e error) bool { return errors.Is(ioErr, e) }) || sector == 0 {
					t.Fatalf("sector %d: %v, want one of %v", sector, ioErr, tc.want)
				}
			}
			// The kernel counts a request after it has woken the waiting task.
			reached := 0
			testenv.UntilShown(t, fmt.Sprintf("%d requests reach the device", want), 5*time.Second, func() (bool, string) {
				reached = requests(t, device, tc.column) - before
				return reached >= want, strconv.Itoa(reached)
			})
			if reached != want {
				t.Errorf("%d requests reached the device, want %d", reached, want)
			}
			if err := d.Heal(t.Context()); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func requests(t *testing.T, device string, column int) int {
	t.Helper()
	b, err := os.ReadFile("/sys/block/" + device + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.Fields(string(b))[column])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReadonlyFS(t *testing.T) {
	f := &inject.ReadonlyFS{StateDir: stateDir(t)}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	device, dir := f.Mount()
	mount, super, err := f.Options()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s on %s: %s - %s", device, dir, mount, super)
	// EIO if ext4 checks its own state and not the superblock's: 6.12.
	if err := os.WriteFile(dir+"/new", nil, 0o600); !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EIO) {
		t.Errorf("write: %v, want EROFS or EIO", err)
	}
	b, err := os.ReadFile("/sys/fs/ext4/" + strings.TrimPrefix(device, "/dev/") + "/errors_count")
	if got := strings.TrimSpace(string(b)); err != nil || got == "0" {
		t.Errorf("ext4 counted %q errors (%v)", got, err)
	}
	repaired, err := f.Heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("repaired: %v", repaired)
	if err := os.WriteFile(dir+"/new", nil, 0o600); err != nil {
		t.Errorf("write after Heal: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
