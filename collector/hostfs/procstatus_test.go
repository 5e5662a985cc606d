package hostfs

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const procStatus = "Name:\tbash\nState:\tS (sleeping)\nTgid:\t42\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\nNSpid:\t42\t7\n" +
	"VmPeak:\t 5000 kB\nVmSize:\t 4800 kB\nVmHWM:\t 3000 kB\nVmRSS:\t 2900 kB\nRssAnon:\t 1000 kB\nRssFile:\t 1800 kB\nRssShmem:\t 100 kB\n" +
	"VmPTE:\t 40 kB\nVmSwap:\t 12 kB\nThreads:\t3\nCapEff:\t0000000000000003\nSeccomp:\t2\nvoluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t4\n"

func TestParseProcStatus(t *testing.T) {
	got, err := ParseProcStatus(procStatus)
	want := ProcStatus{
		Threads: 3, TGID: 42, UID: 1000, VMSize: 4800 << 10, RSS: 2900 << 10, PeakRSS: 3000 << 10, AnonRSS: 1000 << 10,
		FileRSS: 1800 << 10, ShmemRSS: 100 << 10, Swap: 12 << 10, CapEff: 3,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = ParseProcStatus("Name:\tkthreadd\nThreads:\t1\n")
	if err != nil || !got.KernelThread {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]bool{
		"SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n": true, "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n": true,
		"SigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n": false,
	} {
		if got, err = ParseProcStatus("Threads:\t1\n" + text); err != nil || got.Killed != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, s := range []string{"", "Name: x\n", "Threads:\t1\nCapEff:\txyz\n"} {
		if got, err := ParseProcStatus(s); err == nil {
			t.Errorf("%q was taken for %+v", s, got)
		}
	}
}

func TestParseProcLimits(t *testing.T) {
	//nolint:dupword // as the kernel has it
	const text = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max cpu time              unlimited            unlimited            seconds   \n" +
		"Max open files            1024                 1048576              files     \n" +
		"Max nice priority         0                    0                    \n" +
		"Max realtime timeout      unlimited            unlimited            us        \nMax\n" + "Max x\n"
	want := []ProcLimit{
		{"cpu time", "unlimited", "unlimited", "seconds"}, {"open files", "1024", "1048576", "files"},
		{"nice priority", "0", "0", ""}, {"realtime timeout", "unlimited", "unlimited", "us"},
	}
	if diff := cmp.Diff(want, ParseProcLimits(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestThisProcess(t *testing.T) {
	f, pid := FS{}, os.Getpid()
	if s, err := f.ProcStatus(pid); err != nil || s.RSS == 0 || s.Threads == 0 || s.KernelThread {
		t.Errorf("%+v, %v", s, err)
	}
	if l, err := f.ProcLimits(pid); err != nil || len(l) != 16 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, _, err := f.OOMScore(pid); err != nil {
		t.Error(err)
	}
	self, _ := os.Executable()
	if exe, err := f.Executable(pid); err != nil || exe != self {
		t.Errorf("%q, %v", exe, err)
	}
	if _, _, err := f.OOMScore(1 << 30); err == nil {
		t.Error("a score of no process")
	}
}

func FuzzProcStatus(f *testing.F) {
	f.Add(procStatus)
	f.Fuzz(func(_ *testing.T, s string) {
		_, _ = ParseProcStatus(s)
		ParseProcLimits(s)
	})
}
