package bpf

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/disklab"
)

const (
	diskBlock  = 4096 // size of each request, and of a page of the backing tmpfs
	diskFaults = 23   // a prime, so that no other loop of the test produces it by accident
)

// blockDevice is a block device of the test.
type blockDevice struct {
	path string
	dev  uint32 // the kernel's own dev_t
}

func openBlockDevice(t testing.TB, path string) blockDevice {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return blockDevice{path: path, dev: unix.Major(st.Rdev)<<20 | unix.Minor(st.Rdev)}
}

// attachLoop attaches a loop device to a file.
func attachLoop(t testing.TB, backing string) blockDevice {
	t.Helper()
	disklab.Need(t)
	return openBlockDevice(t, disklab.Attach(t, backing, 0, 0))
}

// fullDisk returns a loop device whose file is on a full tmpfs: every write to it fails.
func fullDisk(t *testing.T) blockDevice {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("kernosis-test", dir, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	backing := filepath.Join(dir, "disk")
	if err := os.WriteFile(backing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(backing, 16<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the tmpfs is not full: %v", err)
	}
	return attachLoop(t, backing)
}

func (d blockDevice) open(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(d.path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// directBuffer returns a block that is aligned as O_DIRECT requires.
func directBuffer(t testing.TB) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, diskBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// drainDiskIO returns copies of the records of one device.
func drainDiskIO(t *testing.T, l *Loaded, dev uint32) []DiskIO {
	t.Helper()
	var records []DiskIO
	if _, err := l.Drain(func(raw []byte) {
		h, err := ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != KindDiskIO {
			return
		}
		r, err := View[DiskIO](raw)
		if err != nil {
			t.Fatal(err)
		}
		if r.Dev == dev {
			records = append(records, *r)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := l.RingFull(); err != nil || n != 0 {
		t.Errorf("lost %d records (%v)", n, err)
	}
	return records
}

// withStatistics runs fn, logs what the stem's programs cost meanwhile, and returns how often each
// ran.
func withStatistics(t *testing.T, l *Loaded, fn func()) (runs map[string]uint64) {
	t.Helper()
	runs = map[string]uint64{}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	type cost struct {
		count uint64
		ns    int64
	}
	before := map[string]cost{}
	read := func(name string) cost {
		s, err := l.programs[name].Stats()
		if err != nil {
			t.Fatal(err)
		}
		return cost{s.RunCount, int64(s.Runtime)}
	}
	for name := range l.programs {
		before[name] = read(name)
	}
	fn()
	for name := range l.programs {
		c := read(name)
		if n := c.count - before[name].count; n > 0 {
			t.Logf("%s: %d runs, %d ns each", name, n, (c.ns-before[name].ns)/int64(n))
			runs[name] = n
		}
	}
	return runs
}

// diskFaultRecords runs fn, which causes diskFaults errors of a loop device, and returns their
// records. Such a request may end while any task is current, and one provider's kernel runs no
// program then if the task is one of its own (docs/kernel-quirks.md): fn is repeated if the kernel
// has counted as many runs of it as there are records, but fewer than diskFaults.
func diskFaultRecords(t *testing.T, l *Loaded, dev uint32, fn func()) []DiskIO {
	t.Helper()
	for attempt := 1; ; attempt++ {
		all := withStatistics(t, l, fn)
		runs := all["request_raw"] + all["complete_raw"]
		records := drainDiskIO(t, l, dev)
		if runs >= diskFaults || runs != uint64(len(records)) || attempt == 3 {
			return records
		}
		t.Logf("the kernel ran the program %d times for %d errors", runs, diskFaults)
	}
}

// Write errors of a process in its own cgroup: each is a record with the cgroup that the I/O is
// charged to.
func TestDiskIOWriteErrors(t *testing.T) {
	k := testKernel(t)
	l := openStem(t, diskio(), k, nil)
	disk := fullDisk(t)
	group := ioGroup(t)
	records := diskFaultRecords(t, l, disk.dev, func() {
		// A dd that fails before it writes is not a disk fault.
		script := fmt.Sprintf(`echo $$ >%s/cgroup.procs
			for i in $(seq %d); do
				said=$(LC_ALL=C dd if=/dev/zero of=%s oflag=direct conv=notrunc bs=%d seek=$i count=1 2>&1) && exit 7
				case $said in *"error writing"*) ;; *) echo "$said"; exit 8 ;; esac
			done; exit 0`, group, diskFaults, disk.path, diskBlock)
		if out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("writes that should fail: %v: %s", err, out)
		}
	})
	if len(records) != diskFaults {
		var sectors []uint64
		for i := range records {
			sectors = append(sectors, records[i].Sector)
		}
		lost, err := l.Losses()
		t.Fatalf("%d failed writes gave %d records, at %v; lost: %+v, %v", diskFaults, len(records), sectors, lost, err)
	}
	flags := uint8(DiskIOIssuer)
	if isStatus, err := requestErrorIsStatus(k); err != nil {
		t.Fatal(err)
	} else if isStatus {
		flags |= DiskIOStatus
	}
	for i, r := range records {
		if r.Op != DiskOpWrite || r.Sector != uint64(i+1)*diskBlock/512 || r.Bytes != diskBlock {
			t.Errorf("record %d: op %d, sector %d, %d bytes", i, r.Op, r.Sector, r.Bytes)
		}
		if r.Disk != disk.dev || r.Start != 0 || "/dev/"+string(CString(r.DiskName[:])) != disk.path {
			t.Errorf("record %d: disk %#x (%s) start %d", i, r.Disk, CString(r.DiskName[:]), r.Start)
		}
		if r.Flags != flags {
			t.Errorf("record %d: flags %#x", i, r.Flags)
		}
		if r.Error == 0 {
			t.Errorf("record %d: no error", i)
		}
		_, name := r.Issuer.Level(0)
		if r.Issuer.Levels() == 0 || string(name) != filepath.Base(group) {
			t.Errorf("record %d: charged to %q (%d levels), want %q", i, name, r.Issuer.Levels(), filepath.Base(group))
		}
	}
	t.Logf("error %d", records[0].Error)
}

// ioGroup creates a cgroup in the hierarchy that block I/O is charged to.
func ioGroup(t *testing.T) string {
	t.Helper()
	root := "/sys/fs/cgroup/blkio"
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		root = "/sys/fs/cgroup"
		controllers, err := os.ReadFile(root + "/cgroup.subtree_control")
		if err != nil {
			t.Skipf("needs cgroup v1 blkio or v2: %v", err)
		}
		if !strings.Contains(string(controllers), "io") {
			if err := os.WriteFile(root+"/cgroup.subtree_control", []byte("+io"), 0); err != nil {
				t.Skipf("needs the io controller: %v", err)
			}
			t.Cleanup(func() { os.WriteFile(root+"/cgroup.subtree_control", []byte("-io"), 0) })
		}
	}
	return testGroup(t, root)
}

// An error is reported for the partition, at the sector of the whole disk.
func TestDiskIOPartition(t *testing.T) {
	k := testKernel(t)
	l := openStem(t, diskio(), k, nil)
	disk := fullDisk(t)
	const start = 2048
	part := addPartition(t, disk, start)
	f, b := part.open(t), directBuffer(t)
	records := diskFaultRecords(t, l, part.dev, func() {
		for i := range diskFaults {
			if _, err := f.WriteAt(b, int64(i)*diskBlock); err == nil {
				t.Fatal("write succeeded")
			}
		}
	})
	if len(records) != diskFaults {
		t.Fatalf("%d failed writes gave %d records", diskFaults, len(records))
	}
	for i, r := range records {
		if r.Disk != disk.dev || r.Start != start || r.Sector != start+uint64(i)*diskBlock/512 {
			t.Errorf("record %d: disk %#x, start %d, sector %d", i, r.Disk, r.Start, r.Sector)
		}
	}
}

// addPartition creates a partition of 1 MiB on the disk, without a partition table.
func addPartition(t *testing.T, disk blockDevice, start int64) blockDevice {
	t.Helper()
	f, err := os.OpenFile(disk.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	info.Flags |= unix.LO_FLAGS_PARTSCAN // allows partitions
	if err := unix.IoctlLoopSetStatus64(int(f.Fd()), info); err != nil {
		t.Fatal(err)
	}
	if err := partition(f, unix.BLKPG_ADD_PARTITION, start*512, 1<<20); err != nil {
		t.Skipf("needs partitions of loop devices: %v", err)
	}
	t.Cleanup(func() {
		f, err := os.OpenFile(disk.path, os.O_RDWR, 0)
		if err == nil {
			err = errors.Join(partition(f, unix.BLKPG_DEL_PARTITION, 0, 0), f.Close())
		}
		if err != nil {
			t.Errorf("remove partition: %v", err)
		}
	})
	return openBlockDevice(t, disk.path+"p1")
}

// partition calls BLKPG for partition 1.
func partition(disk *os.File, op int32, start, length int64) error {
	p := struct {
		start, length int64
		number        int32
		device, label [64]byte
		_             [4]byte
	}{start: start, length: length, number: 1}
	arg := unix.BlkpgIoctlArg{Op: op, Datalen: int32(unsafe.Sizeof(p)), Data: (*byte)(unsafe.Pointer(&p))}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, disk.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		return errno
	}
	return nil
}

// fallback returns the stem without its preferred request program, as on a kernel that lacks
// block_rq_error.
func fallback() Stem {
	s := diskio()
	s.hooks[0].variants = s.hooks[0].variants[1:]
	return s
}

// Read errors with each variant of the request hook; issued from the root cgroup, so that there is
// no issuer.
func TestDiskIOReadErrors(t *testing.T) {
	for name, stem := range map[string]Stem{"error": diskio(), "complete": fallback()} {
		t.Run(name, func(t *testing.T) {
			k := testKernel(t)
			if _, err := quietBit(k); err != nil && name == "complete" {
				t.Skipf("this kernel has block_rq_error, and can't run the fallback: %v", err)
			}
			l := openStem(t, stem, k, nil)
			backing := filepath.Join(t.TempDir(), "disk")
			if err := os.WriteFile(backing, make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			disk := attachLoop(t, backing)
			if err := os.Truncate(backing, diskBlock); err != nil {
				t.Fatal(err)
			}
			f, b := disk.open(t), directBuffer(t)
			if _, err := f.ReadAt(b, 0); err != nil {
				t.Fatalf("read of what is there: %v", err)
			}
			records := diskFaultRecords(t, l, disk.dev, func() {
				for i := range diskFaults {
					if _, err := f.ReadAt(b, int64(i+1)*diskBlock); err == nil {
						t.Skip("a loop device over a truncated file reads zeros before 6.12")
					}
				}
			})
			if len(records) != diskFaults {
				t.Fatalf("%d failed reads gave %d records", diskFaults, len(records))
			}
			for i, r := range records {
				if r.Op != DiskOpRead || r.Sector != uint64(i+1)*diskBlock/512 || r.Error != 10 { // BLK_STS_IOERR
					t.Errorf("record %d: op %d, sector %d, error %d", i, r.Op, r.Sector, r.Error)
				}
				if r.Flags&^DiskIOIssuer != DiskIOStatus {
					t.Errorf("record %d: flags %#x", i, r.Flags)
				}
			}
		})
	}
}

// A bio-based device: errors are seen only while the on-demand hook is attached.
func TestDiskIOBioErrors(t *testing.T) {
	k := testKernel(t)
	l := openStem(t, diskio(), k, nil)
	disk := fullZram(t)
	f, b := disk.open(t), directBuffer(t)
	next := int64(0)
	for { // the limit leaves room for a page or two
		rand.Read(b) // compressible data would fit
		if _, err := f.WriteAt(b, next*diskBlock); err != nil {
			break
		}
		if next++; next > 64 {
			t.Fatal("the limit does not hold")
		}
	}
	first := next
	fail := func() {
		t.Helper()
		for range diskFaults {
			if _, err := f.WriteAt(b, next*diskBlock); err == nil {
				t.Fatal("write succeeded")
			}
			next++
		}
	}
	fail()
	if got := drainDiskIO(t, l, disk.dev); len(got) != 0 {
		t.Errorf("without the bio hook %d records", len(got))
	}
	if err := l.Attach(HookDiskIOBio); err != nil {
		t.Fatal(err)
	}
	withStatistics(t, l, fail)
	records := drainDiskIO(t, l, disk.dev)
	if len(records) != diskFaults {
		t.Fatalf("%d failed writes gave %d records", diskFaults, len(records))
	}
	for i, r := range records {
		if r.Op != DiskOpWrite || r.Sector != uint64(first+int64(i)+diskFaults)*diskBlock/512 || r.Error != 10 {
			t.Errorf("record %d: op %d, sector %d, error %d", i, r.Op, r.Sector, r.Error)
		}
		if r.Flags&^DiskIOIssuer != DiskIOStatus|DiskIOBio {
			t.Errorf("record %d: flags %#x", i, r.Flags)
		}
	}
	if err := l.Detach(HookDiskIOBio); err != nil {
		t.Fatal(err)
	}
	fail()
	if got := drainDiskIO(t, l, disk.dev); len(got) != 0 {
		t.Errorf("after detaching %d records", len(got))
	}
}

// Requests are not reported a second time by the bio hook.
func TestDiskIORequestsAreReportedOnce(t *testing.T) {
	k := testKernel(t)
	l := openStem(t, diskio(), k, nil)
	if err := l.Attach(HookDiskIOBio); err != nil {
		t.Fatal(err)
	}
	disk := fullDisk(t)
	f, b := disk.open(t), directBuffer(t)
	got := diskFaultRecords(t, l, disk.dev, func() {
		for i := range diskFaults {
			if _, err := f.WriteAt(b, int64(i)*diskBlock); err == nil {
				t.Fatal("write succeeded")
			}
		}
	})
	if len(got) != diskFaults {
		t.Errorf("%d failed writes gave %d records", diskFaults, len(got))
	}
}

// fullZram returns a compressed RAM disk whose memory limit leaves no room.
func fullZram(t testing.TB) blockDevice {
	t.Helper()
	id, err := os.ReadFile("/sys/class/zram-control/hot_add")
	if err != nil {
		t.Skipf("needs zram: %v", err)
	}
	n := strings.TrimSpace(string(id))
	sys := "/sys/block/zram" + n
	t.Cleanup(func() {
		if err := os.WriteFile(sys+"/reset", []byte("1"), 0); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile("/sys/class/zram-control/hot_remove", []byte(n), 0); err != nil {
			t.Error(err)
		}
	})
	for _, set := range [][2]string{{"disksize", "16M"}, {"mem_limit", "4K"}} {
		if err := os.WriteFile(filepath.Join(sys, set[0]), []byte(set[1]), 0); err != nil {
			t.Skipf("needs zram with a compressor: %s: %v", set[0], err)
		}
	}
	return openBlockDevice(t, "/dev/zram"+n)
}

// BenchmarkDiskIOSuccess measures what each program costs per successful request or bio. The
// preferred program does not run at all.
func BenchmarkDiskIOSuccess(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root to load programs")
	}
	b.Run("error", func(b *testing.B) { benchmarkSuccess(b, diskio(), DiskioProgRequestRaw, loopOfZeros) })
	b.Run("complete", func(b *testing.B) { benchmarkSuccess(b, fallback(), DiskioProgCompleteRaw, loopOfZeros) })
	b.Run("bio", func(b *testing.B) { benchmarkSuccess(b, diskio(), DiskioProgBioRaw, fullZram) })
}

func loopOfZeros(t testing.TB) blockDevice {
	backing := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(backing, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return attachLoop(t, backing)
}

func benchmarkSuccess(b *testing.B, s Stem, program string, disk func(testing.TB) blockDevice) {
	k, err := OpenKernel()
	if err != nil {
		b.Fatal(err)
	}
	l, err := Open(s, k, nil)
	b.Cleanup(func() { l.Close() })
	if err != nil {
		b.Fatal(err)
	}
	if program == DiskioProgBioRaw {
		if err := l.Attach(HookDiskIOBio); err != nil {
			b.Fatal(err)
		}
	}
	f, block := disk(b).open(b), directBuffer(b)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	before, err := l.programs[program].Stats()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := f.ReadAt(block, 0); err != nil {
			b.Fatal(err)
		}
	}
	after, err := l.programs[program].Stats()
	if err != nil {
		b.Fatal(err)
	}
	runs := after.RunCount - before.RunCount
	b.ReportMetric(float64(runs)/float64(b.N), "runs/op")
	if runs > 0 {
		b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(runs), "bpf-ns/run")
	}
}

// In a storm only the first errors of a kind are recorded. The others are counted, for the running
// agent or the next one.
func TestDiskIOStorm(t *testing.T) {
	const errors, recorded = 1000, 100
	l := openStem(t, diskio(), testKernel(t), nil)
	disk := fullDisk(t)
	f, b := disk.open(t), directBuffer(t)
	runs := withStatistics(t, l, func() {
		for i := range errors {
			if _, err := f.WriteAt(b, int64(i)*diskBlock); err == nil {
				t.Fatal("write succeeded")
			}
		}
	})
	// The kernel may run no program for a few of them, see diskFaultRecords.
	seen := min(runs["request_raw"]+runs["complete_raw"], errors)
	if seen < errors-5 {
		t.Fatalf("the kernel ran the program %d times for %d errors", seen, errors)
	}
	records := drainDiskIO(t, l, disk.dev)
	if len(records) != recorded {
		t.Fatalf("%d records of %d errors, want %d", len(records), errors, recorded)
	}
	unrecorded := func() (of DiskErrors) {
		t.Helper()
		all, err := l.UnrecordedDiskErrors(time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Kind.Dev == disk.dev {
				of = e
			}
		}
		return of
	}
	more := unrecorded()
	if more.N != seen-recorded || more.Kind != records[0].Kind() {
		t.Fatalf("%d of %+v counted, want %d of %+v", more.N, more.Kind, seen-recorded, records[0].Kind())
	}
	countsOnlyNewErrors(t, l, more, unrecorded, func() error { _, err := f.WriteAt(b, 0); return err })
	// Other kinds may have been deleted by then; this one must not be.
	if more := unrecorded(); more.N != 1 {
		t.Errorf("%d counted at another look, want 1", more.N)
	}
}

// countsOnlyNewErrors marks errors as reported, and checks that none of them counts again, but that
// the next one, provoked by write, does.
func countsOnlyNewErrors(t *testing.T, l *Loaded, reported DiskErrors, counted func() DiskErrors, write func() error) {
	t.Helper()
	if err := l.ReportedDiskErrors(reported); err != nil {
		t.Fatal(err)
	}
	if again := counted(); again.N != 0 {
		t.Errorf("%d counted after they were reported", again.N)
	}
	if write() == nil {
		t.Fatal("write succeeded")
	}
	if more := counted(); more.N != 1 {
		t.Errorf("%d counted, want the one that came since", more.N)
	}
}

// Kinds of storms that ended and are reported make room for others: restarting pods have new
// cgroups and so make new kinds. Unreported kinds stay.
func TestDiskErrorKindsAreForgotten(t *testing.T) {
	l := openStem(t, diskio(), testKernel(t), nil)
	storms := l.maps[mapStorms]
	put := func(issuer, began, more, reported uint64) DiskErrorKind {
		t.Helper()
		kind := DiskErrorKind{Issuer: issuer}
		if err := errors.Join(storms.Put(&kind, &diskStorm{Began: began, More: more}), l.maps[mapStormsReported].Put(&kind, reported)); err != nil {
			t.Fatal(err)
		}
		return kind
	}
	const now = time.Hour
	kept := []DiskErrorKind{put(1, 1, 5, 4), put(2, uint64(now-time.Minute), 5, 5)}
	for issuer := uint64(len(kept)) + 1; issuer <= uint64(storms.MaxEntries()/2); issuer++ {
		put(issuer, 1, 5, 5)
	}
	all, err := l.UnrecordedDiskErrors(now)
	all = slices.DeleteFunc(all, func(e DiskErrors) bool { return e.Kind.Dev != 0 }) // of other tests
	if err != nil || len(all) != 1 || all[0].Kind != kept[0] || all[0].N != 1 {
		t.Errorf("%+v (%v), want the one that is not reported", all, err)
	}
	for name, storm := range map[string]any{mapStorms: new(diskStorm), mapStormsReported: new(uint64)} {
		var kind DiskErrorKind
		var left []DiskErrorKind
		it := l.maps[name].Iterate()
		for it.Next(&kind, storm) {
			if kind.Dev == 0 { // else of another test
				left = append(left, kind)
			}
		}
		slices.SortFunc(left, func(a, b DiskErrorKind) int { return cmp.Compare(a.Issuer, b.Issuer) })
		if err := it.Err(); err != nil || !slices.Equal(left, kept) {
			t.Errorf("%s: %d kinds left (%v), want %d", name, len(left), err, len(kept))
		}
	}
}
