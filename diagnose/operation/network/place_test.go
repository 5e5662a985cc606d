package network

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/netlab"
)

// The namespace is found by each parameter that names it, and only by these.
func TestNetPlace(t *testing.T) {
	h := host()
	prober, target := netlab.PairIn(t, 33)
	uid, cgroup := podOf(t, target)
	pid := holder(target)
	stat, err := h.FS.Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	own, err := findNode(h)
	if err != nil {
		t.Fatal(err)
	}
	node := own.inode
	for name, c := range map[string]struct {
		v    operation.Values
		want uint32
		err  string
	}{
		"inode":          {v: operation.Values{"netns": inode(target)}, want: target.Inode},
		"pid":            {v: operation.Values{"pid": strconv.Itoa(pid)}, want: target.Inode},
		"start time":     {v: operation.Values{"pid": strconv.Itoa(pid), "startTime": (stat.StartTime + 9*time.Millisecond).String()}, want: target.Inode},
		"pod":            {v: operation.Values{"podUID": uid}, want: target.Inode},
		"pod first":      {v: operation.Values{"podUID": uid, "netns": inode(prober), "pid": "1"}, want: target.Inode},
		"cgroup":         {v: operation.Values{"cgroup": cgroup}, want: target.Inode},
		"cgroup above":   {v: operation.Values{"cgroup": filepath.Dir(cgroup) + "/"}, want: target.Inode},
		"gone, cgroup":   {v: operation.Values{"pid": strconv.Itoa(pid), "startTime": "1s", "cgroup": cgroup}, want: target.Inode},
		"node":           {v: operation.Values{}, want: node},
		"another":        {v: operation.Values{"pid": strconv.Itoa(pid), "startTime": "1s"}, err: "process " + strconv.Itoa(pid) + " is gone: its PID was reused"},
		"ended":          {v: operation.Values{"pid": "4194303"}, err: "process 4194303 is gone: it has ended"},
		"no such pod":    {v: operation.Values{"podUID": "11111111-0000-4000-8000-000000000000"}, err: "no process of pod 1111"},
		"no such cgroup": {v: operation.Values{"cgroup": cgroup + "x"}, err: "no process of cgroup"},
		"no such inode":  {v: operation.Values{"netns": "77"}, err: "network namespace 77: no process"},
	} {
		p, _, err := findPlace(h, c.v)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", name, err, c.err)
			}
			continue
		}
		if err != nil || p.inode != c.want || p.node != (c.want == node) {
			t.Errorf("%s: %s, node %v, %v", name, p, p.node, err)
		}
	}

	to := operation.Values{"netns": inode(prober), "address": "10.97.33.2"}
	if p, _, err := findOwnTarget(h, to); err != nil || p.inode != target.Inode {
		t.Errorf("found by its address: %s, %v", p, err)
	}
	to["address"] = "10.97.33.77"
	if _, _, err := findTarget(h, to); err == nil || !strings.Contains(err.Error(), "no network namespace") {
		t.Errorf("an address that is nowhere: %v", err)
	}
	// A pod's user must not inspect others.
	to = operation.Values{"podUID": uid, "address": "10.97.33.1"}
	if _, _, err := findOwnTarget(h, to); err == nil || !strings.Contains(err.Error(), "is not an address of pod") {
		t.Errorf("an address of another pod: %v", err)
	}
	if p, _, err := findTarget(h, to); err != nil || p.inode != prober.Inode {
		t.Errorf("not confined: %s, %v", p, err)
	}
}
