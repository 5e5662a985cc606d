package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestParseKernelStack(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"6.18", "[<0>] folio_wait_bit_common+0x13e/0x340\n[<0>] ext4_sync_file+0xb1/0x150 [ext4]\n", []string{"folio_wait_bit_common+0x13e", "ext4_sync_file+0xb1 [ext4]"}},
		{"4.14", "[<ffffffff8120abcd>] do_wait+0x1b/0x20\n[<ffffffffffffffff>] 0xffffffffffffffff\n", []string{"do_wait+0x1b"}},
		{"none", "", nil},
		{"hostile", "[<0>] a\x1bb+0x1/0x2\nno frame\n[<0>]\n", []string{`a\x1bb+0x1`}},
	} {
		if got := ParseKernelStack(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := ParseKernelStack(strings.Repeat("[<0>] f+0x1/0x2\n", 1000)); len(got) != maxStackFrames {
		t.Errorf("%d frames", len(got))
	}
}

func TestParseExecStart(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"bash (1, #threads: 1)\n----\nse.exec_start                                :      45988369.133630\nse.vruntime : 1.0\n": 45988369133630,
		"se.exec_start : 0.000001": 1,
	} {
		if got, err := ParseExecStart(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "se.exec_start", "se.exec_start : 1", "se.exec_start : 1.5", "se.exec_start : -1.000000", "se.exec_start : 99999999999999.000000"} {
		if got, err := ParseExecStart(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestParseSyscall(t *testing.T) {
	got, ok := ParseSyscall("1 0x3 0x7f3558fca000 0x20000 0x7f355905cb60 0xffffffff 0x0 0x7ffd4ac54bc8 0x7f35591452ad")
	if !ok || got.Number != 1 || got.Args != [6]uint64{3, 0x7f3558fca000, 0x20000, 0x7f355905cb60, 0xffffffff, 0} {
		t.Errorf("%+v, %t", got, ok)
	}
	for _, text := range []string{
		"", "running", "-1 0x7ffd4ac54bc8 0x7f35591452ad",
		"4 0x3 0xffd4b000 0x20 0x0 0x0 0x0 0xffd4af00 0xf7f35579", // a 32-bit task
		"1 0x3 zz 0x20000 0x7f355905cb60 0xffffffff 0x0 0x7ffd4ac54bc8 0x7f35591452ad",
	} {
		if got, ok := ParseSyscall(text); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func FuzzBlocked(f *testing.F) {
	f.Add("[<0>] a+0x1/0x2 [m]\nse.exec_start : 1.000000\nmnt_id:\t3\n1 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffd4ac54bc8 0x1")
	f.Fuzz(func(_ *testing.T, s string) {
		ParseKernelStack(s)
		_, _ = ParseExecStart(s)
		ParseSyscall(s)
		_, _ = parseMountID(s)
		ParseDiskStat([]byte(s))
		_, _, _ = ParseDeviceNumber(s)
	})
}

// A thread of this process waits in a read of a pipe, and the kernel reports that correctly.
func TestWaitingTaskOfTheKernel(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	tid, ended := make(chan int), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(ended)
		tid <- unix.Gettid()
		_, _ = unix.Read(int(r.Fd()), make([]byte, 1)) // blocking: Fd removed it from the poller
	}()
	reader, f := <-tid, FS{}
	testenv.Until(t, "the reader sleeps", 10*time.Second, func() bool {
		stat, err := f.Stat(reader)
		if err != nil {
			t.Fatal(err)
		}
		// Before the read the runtime may make it sleep for other reasons. The kernel reports no
		// system call for a task that is just falling asleep.
		call, ok, err := f.Syscall(reader)
		return stat.State == 'S' && (err != nil || ok && call.Number == unix.SYS_READ)
	})
	call, ok, err := f.Syscall(reader)
	switch {
	case errors.Is(err, fs.ErrPermission):
		t.Log("no /proc/PID/syscall here:", err)
	case err != nil || !ok || call.Number != unix.SYS_READ || call.Args[0] != uint64(r.Fd()):
		t.Errorf("system call %+v, %t, %v", call, ok, err)
	}
	if os.Geteuid() == 0 {
		stack, err := f.KernelStack(reader)
		if err != nil || !slices.ContainsFunc(stack, func(s string) bool { return strings.Contains(s, "pipe_read+0x") }) {
			t.Errorf("stack %q, %v", stack, err)
		}
		if channel, err := f.WaitChannel(reader); err != nil || !strings.Contains(channel, "pipe_read") {
			t.Errorf("wait channel %q, %v", channel, err)
		}
	}
	file, err := f.OpenFile(os.Getpid(), int(r.Fd()))
	if err != nil || !strings.HasPrefix(file.Target, "pipe:[") || file.Deleted {
		t.Errorf("%+v, %v", file, err)
	}
	if m, err := f.FileMount(os.Getpid(), int(r.Fd())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pipe's mount: %+v, %v", m, err)
	}
	tids, err := f.Threads(os.Getpid())
	if err != nil || !slices.Contains(tids, reader) || !slices.Contains(tids, os.Getpid()) {
		t.Errorf("threads %d, %v", tids, err)
	}
	if _, err := w.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	<-ended
}

func TestOpenFiles(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/x (deleted)")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	find := func() OpenFile {
		t.Helper()
		files, count, err := FS{}.OpenFiles(os.Getpid(), 1000)
		if err != nil || count < len(files) {
			t.Fatal(count, len(files), err)
		}
		i := slices.IndexFunc(files, func(o OpenFile) bool { return o.FD == int(file.Fd()) })
		if i < 0 {
			t.Fatalf("file %d is not among %+v", file.Fd(), files)
		}
		return files[i]
	}
	if err := os.Remove(file.Name()); err != nil {
		t.Fatal(err)
	}
	if got := find(); !got.Deleted || got.Target != file.Name() {
		t.Errorf("%+v", got)
	}
	if files, count, err := (FS{}).OpenFiles(os.Getpid(), 1); len(files) != 1 || count < 4 || err != nil {
		t.Errorf("%d of %d, %v", len(files), count, err)
	}
	m, err := FS{}.FileMount(os.Getpid(), int(file.Fd()))
	if err != nil || m.Path == "" || m.FSType == "" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestParseDiskStat(t *testing.T) {
	got, ok := ParseDiskStat([]byte("   1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"))
	want := DiskStat{
		Reads: 1, ReadSectors: 3, ReadTime: 4e6, Writes: 5, WriteSectors: 7, WriteTime: 8e6, InFlight: 9, Busy: 10e6,
		Discards: 12, DiscardSectors: 14, Flushes: 16,
	}
	if !ok || got != want || got.Done() != 1+3+5+7+12+14+16 {
		t.Errorf("%+v, %t", got, ok)
	}
	for _, s := range []string{"", "1 2 3", "1 2 3 4 5 6 7 8 9 10 -11"} {
		if got, ok := ParseDiskStat([]byte(s)); ok {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

func TestDisksOfThisMachine(t *testing.T) {
	disks, err := FS{}.Disks()
	if err != nil {
		t.Skip(err)
	}
	for _, d := range disks {
		if _, err := (FS{}).DiskStat(d); err != nil {
			t.Error(err)
		}
		major, minor, err := FS{}.DeviceNumber(d)
		if err != nil {
			continue // a path of a multipath NVMe disk has none
		}
		if got := (FS{}).Device(major, minor); got.Name != d {
			t.Errorf("%d:%d is %q, want %q", major, minor, got.Name, d)
		}
		if _, err := (FS{}).Partitions(d); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "..", ".", "no-such"} {
		if s, err := (FS{}).DiskStat(bad); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}
