package operation

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/netlab"
)

// The namespace is found by whatever names it, and by nothing else.
func TestNetPlace(t *testing.T) {
	h := netHost()
	prober, target := netlab.PairIn(t, 33)
	uid, cgroup := netPod(t, target)
	pid := netHolder(target)
	stat, err := h.FS.Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	own, err := h.netNode()
	if err != nil {
		t.Fatal(err)
	}
	node := own.inode
	for name, c := range map[string]struct {
		v    Values
		want uint32
		err  string
	}{
		"inode":          {v: Values{"netns": netInode(target)}, want: target.Inode},
		"pid":            {v: Values{"pid": strconv.Itoa(pid)}, want: target.Inode},
		"start time":     {v: Values{"pid": strconv.Itoa(pid), "startTime": (stat.StartTime + 9*time.Millisecond).String()}, want: target.Inode},
		"pod":            {v: Values{"podUID": uid}, want: target.Inode},
		"pod first":      {v: Values{"podUID": uid, "netns": netInode(prober), "pid": "1"}, want: target.Inode},
		"cgroup":         {v: Values{"cgroup": cgroup}, want: target.Inode},
		"cgroup above":   {v: Values{"cgroup": filepath.Dir(cgroup) + "/"}, want: target.Inode},
		"gone, cgroup":   {v: Values{"pid": strconv.Itoa(pid), "startTime": "1s", "cgroup": cgroup}, want: target.Inode},
		"node":           {v: Values{}, want: node},
		"another":        {v: Values{"pid": strconv.Itoa(pid), "startTime": "1s"}, err: "process " + strconv.Itoa(pid) + " is gone: its number was given again"},
		"ended":          {v: Values{"pid": "4194303"}, err: "process 4194303 is gone: it has ended"},
		"no such pod":    {v: Values{"podUID": "11111111-0000-4000-8000-000000000000"}, err: "no process of pod 1111"},
		"no such cgroup": {v: Values{"cgroup": cgroup + "x"}, err: "no process of cgroup"},
		"no such inode":  {v: Values{"netns": "77"}, err: "network namespace 77: no process"},
	} {
		p, err := h.netPlace(c.v)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", name, err, c.err)
			}
			continue
		}
		if err != nil || p.inode != c.want || p.node != (c.want == node) {
			t.Errorf("%s: %s, node %v, %v", name, &p, p.node, err)
		}
	}

	to := Values{"netns": netInode(prober), "address": "10.97.33.2"}
	if p, err := h.netTarget(to, true); err != nil || p.inode != target.Inode {
		t.Errorf("found by its address: %s, %v", &p, err)
	}
	to["address"] = "10.97.33.77"
	if _, err := h.netTarget(to, false); err == nil || !strings.Contains(err.Error(), "no network namespace") {
		t.Errorf("an address that is nowhere: %v", err)
	}
	// A pod's user must not look at others.
	to = Values{"podUID": uid, "address": "10.97.33.1"}
	if _, err := h.netTarget(to, true); err == nil || !strings.Contains(err.Error(), "is no address of pod") {
		t.Errorf("an address of another pod: %v", err)
	}
	if p, err := h.netTarget(to, false); err != nil || p.inode != prober.Inode {
		t.Errorf("not confined: %s, %v", &p, err)
	}
}
