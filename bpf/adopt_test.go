package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// refused counts the records of connections to a port where nothing listens.
func refused(t *testing.T, l *Loaded) (n int) {
	t.Helper()
	if _, err := l.Drain(func(raw []byte) {
		if h, err := ParseHeader(raw); err == nil && h.Kind == KindSockFail {
			n++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// Pinned programs may be adopted only if they write to the maps that are read.
func TestAdoptedProgramsUseTheMapsThatAreRead(t *testing.T) {
	k := testKernel(t)
	for _, s := range Stems() {
		t.Run(s.Name, func(t *testing.T) {
			pins, reopen := testPins(t)
			first := openStem(t, s, k, pins)
			first.Close()
			ring := mapPin(first.dir, mapEvents)
			if err := os.Remove(ring); err != nil {
				t.Fatal(err)
			}
			pins.Close()
			second := openStem(t, s, k, reopen())
			for _, r := range second.Reports() {
				if r.State == Adopted && r.Program != SockfailProgResetRaw { // which writes to no ring
					t.Errorf("%s adopted, whose ring nobody reads", r.Program)
				}
			}
		})
	}
}

// A link on a cgroup below the root sees only that cgroup.
func TestAdoptedLinksAreOnTheRoot(t *testing.T) {
	k := testKernel(t)
	pins, reopen := testPins(t)
	first := openStem(t, sockfail(), k, pins)
	n := newTestNet(t)
	key := NewSockTargetKey(n.inode, netip.Addr{}, 9)
	rewatch(t, first, key)
	root, err := openCgroupRoot()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	lk, err := link.AttachCgroup(link.CgroupOptions{Path: testGroup(t, root.Name()), Attach: ebpf.AttachCGroupInet4Connect, Program: first.programs[SockfailProgConnect4Cg]})
	if err != nil {
		t.Fatal(err)
	}
	defer lk.Close()
	path := linkPin(first.dir, hookConnect4, SockfailProgConnect4Cg)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := lk.Pin(path); err != nil {
		t.Fatal(err)
	}
	lk.Close()
	first.Close()
	pins.Close()

	second := openStem(t, sockfail(), k, reopen())
	t.Cleanup(func() { rewatch(t, second) })
	n.dial(t, netip.MustParseAddrPort("192.0.2.1:9"), syscall.ENETUNREACH)
	if err := second.SweepNeverSent(1 << 62); err != nil {
		t.Fatal(err)
	}
	if got := refused(t, second); got != 1 {
		t.Errorf("%d records of one connect() without a route", got)
	}
}

// A pinned kprobe on a module's function may be dead: the module may have been unloaded and loaded
// again while no agent ran. The kernel's tracepoint stands in for it, as not all kernels have kprobes.
func TestKprobesOnModulesAreNotAdopted(t *testing.T) {
	for _, h := range fserror().hooks {
		for _, v := range h.variants {
			if kprobe := strings.HasSuffix(v.program, "_kp"); kprobe != v.mayDie {
				t.Errorf("%s: mayDie is %t, want %t", v.program, v.mayDie, kprobe)
			}
		}
	}
	k := testKernel(t)
	pins, reopen := testPins(t)
	s := fserror()
	s.hooks[0].variants[0].mayDie = true
	hook, program := s.hooks[0].name, s.hooks[0].variants[0].program
	first := openStem(t, s, k, pins)
	before, err := first.links[hook].Info()
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	pins.Close()
	second := openStem(t, s, k, reopen())
	i := slices.IndexFunc(second.Reports(), func(r VariantReport) bool { return r.Program == program })
	if r := second.Reports()[i]; r.State != Attached || !r.Pinned {
		t.Errorf("%s is %s, pinned: %t", program, r.State, r.Pinned)
	}
	if after, err := second.links[hook].Info(); err != nil || after.ID == before.ID {
		t.Errorf("link %+v (%v), want another one than %d", after, err, before.ID)
	}
	testenv.Until(t, "the earlier link detached", 5*time.Second, func() bool {
		lk, err := link.NewFromID(before.ID)
		if err == nil {
			lk.Close()
		}
		return errors.Is(err, os.ErrNotExist)
	})
}

// unpin removes a pin. The kernel detaches a link some milliseconds after its last pin is gone.
func unpin(t *testing.T, path string) {
	t.Helper()
	var id link.ID
	if lk, err := link.LoadPinnedLink(path, nil); err == nil {
		info, err := lk.Info()
		if err != nil {
			t.Fatal(err)
		}
		id = info.ID
		lk.Close()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if id != 0 {
		testenv.Until(t, "detached", 5*time.Second, func() bool {
			lk, err := link.NewFromID(id)
			if err == nil {
				lk.Close()
			}
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

// An agent that is killed while it unpins leaves some pins, in an order that the kernel chooses.
// The next one must still detect faults, and clean up.
func TestKilledWhileUnpinning(t *testing.T) {
	k := testKernel(t)
	n := newTestNet(t)
	closed := netip.MustParseAddrPort("127.0.0.1:9")
	key := NewSockTargetKey(n.inode, closed.Addr(), closed.Port())
	pinned := func(root *PinRoot) []string {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(root.path, StemSockFail, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, order := range []string{"in order", "backwards"} {
		step := 1
		if testing.Short() {
			step = 5
		}
		for removed, total := 0, 1; removed <= total; removed += step {
			pins, reopen := testPins(t)
			first := openStem(t, sockfail(), k, pins)
			rewatch(t, first, key)
			all := pinned(pins)
			if order == "backwards" {
				slices.Reverse(all)
			}
			total = len(all)
			first.Close()
			for _, path := range all[:removed] {
				unpin(t, path)
			}
			pins.Close()

			pins = reopen()
			second := openStem(t, sockfail(), k, pins)
			rewatch(t, second, key)
			where := fmt.Sprintf("%s, after %d of %d (%s)", order, removed, total, strings.TrimPrefix(all[max(removed-1, 0)], pins.path))
			// The kernel frees a link's ID before it detaches the program: for a moment, two may record.
			testenv.UntilShown(t, where+": one record of each refused connection", 5*time.Second, func() (bool, string) {
				n.dial(t, closed, syscall.ECONNREFUSED)
				got := refused(t, second)
				if got == 0 {
					t.Fatalf("%s: no record of a refused connection", where)
				}
				return got == 1, strconv.Itoa(got)
			})
			folders, err := os.ReadDir(filepath.Join(pins.path, StemSockFail))
			if err != nil || len(folders) != 2 {
				t.Errorf("%s, after %d of %d: %v pinned (%v), want this build and its state alone", order, removed, total, folders, err)
			}
			second.Close()
			if err := pins.Remove(); err != nil {
				t.Error(err)
			}
			if left, err := os.Stat(pins.path); err == nil {
				t.Errorf("%s is left", left.Name())
			}
			pins.Close()
		}
	}
}

// A better program that an earlier run could not use takes over as soon as it works: the cause may
// have been a missing capability, or temporary.
func TestBetterProgramTakesOver(t *testing.T) {
	k := testKernel(t)
	for name, killed := range map[string]bool{"fallback pinned": false, "killed before the fallback is gone": true} {
		t.Run(name, func(t *testing.T) {
			pins, reopen := testPins(t)
			hook := hungtask().hooks[0].name
			without := hungtask()
			without.hooks[0].variants[0].usable = func(*Kernel) error { return errForbidden }
			first := openStem(t, without, k, pins)
			if !first.serves(hook, HungtaskProgHangRaw) {
				t.Skip("this kernel has no fallback")
			}
			fallback := linkPin(first.dir, hook, HungtaskProgHangRaw)
			info, err := first.links[hook].Info()
			if err != nil {
				t.Fatal(err)
			}
			first.Close()
			if killed {
				aside := filepath.Join(first.dir, "aside")
				if err := os.Rename(fallback, aside); err != nil {
					t.Fatal(err)
				}
				openStem(t, hungtask(), k, pins).Close()
				if err := os.Rename(aside, fallback); err != nil {
					t.Fatal(err)
				}
			}
			pins.Close()

			second := openStem(t, hungtask(), k, reopen())
			want := Attached
			if killed {
				want = Adopted
			}
			for i, r := range second.Reports() {
				if i == 0 && r.State != want || i == 1 && r.State != Unused {
					t.Errorf("%s is %s: %s", r.Program, r.State, r.Reason)
				}
			}
			if _, err := os.Stat(fallback); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the fallback is pinned still: %v", err)
			}
			testenv.Until(t, "the fallback detached", 5*time.Second, func() bool {
				lk, err := link.NewFromID(info.ID)
				if err == nil {
					lk.Close()
				}
				return errors.Is(err, os.ErrNotExist)
			})
		})
	}
}

// A fallback stays while nothing better works, and the report has the current reason.
func TestFallbackStays(t *testing.T) {
	k := testKernel(t)
	pins, reopen := testPins(t)
	without := hungtask()
	without.hooks[0].variants[0].attach = func(*ebpf.Program) (link.Link, error) { return nil, syscall.ENOMEM }
	first := openStem(t, without, k, pins)
	if !first.serves(without.hooks[0].name, HungtaskProgHangRaw) {
		t.Skip("this kernel has no fallback")
	}
	first.Close()
	pins.Close()
	second := openStem(t, without, k, reopen())
	if r := second.Reports(); r[0].State != Failed || r[1].State != Adopted {
		t.Errorf("%+v, want failed and adopted", r)
	}
	if err := second.CheckLinks(); err != nil {
		t.Error(err)
	}
}

// On-demand hooks are adopted after a kill, whatever the hook's name, and end with the last target.
func TestOnDemandHooksAreAdopted(t *testing.T) {
	k := testKernel(t)
	pins, reopen := testPins(t)
	first := openStem(t, sockfail(), k, pins)
	key := NewSockTargetKey(1, netip.Addr{}, 9)
	rewatch(t, first, key)
	if err := first.Attach(hookStateToo); err != nil {
		t.Fatal(err)
	}
	first.Close() // killed
	pins.Close()

	second := openStem(t, sockfail(), k, reopen())
	for _, r := range second.Reports() {
		if r.Hook == hookStateToo && (r.State != Adopted || !r.Pinned) {
			t.Errorf("%s is %s, pinned: %t", r.Program, r.State, r.Pinned)
		}
	}
	rewatch(t, second)
	links, err := pinnedLinks(second.dir)
	if err != nil || len(links[hookStateToo]) != 0 {
		t.Errorf("%v (%v) pinned without a target", links, err)
	}
}

// A pin whose hook is unknown is from an earlier version, whose hook had another name.
func TestPinsOfUnknownHooksAreRemoved(t *testing.T) {
	k := testKernel(t)
	pins, reopen := testPins(t)
	first := openStem(t, sockfail(), k, pins)
	rewatch(t, first, NewSockTargetKey(1, netip.Addr{}, 9))
	if err := first.Attach(hookStateToo); err != nil {
		t.Fatal(err)
	}
	left := linkPin(first.dir, "state-too", SockfailProgStateRaw)
	if err := os.Rename(linkPin(first.dir, hookStateToo, SockfailProgStateRaw), left); err != nil {
		t.Fatal(err)
	}
	first.Close()
	pins.Close()

	second := openStem(t, sockfail(), k, reopen())
	t.Cleanup(func() { rewatch(t, second) })
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", left, err)
	}
}
