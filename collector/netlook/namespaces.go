package netlook

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// maxNamespaces is how many namespaces are searched for an address; a node runs at most some
	// hundred pods.
	maxNamespaces = 1024
	// namespacesFor is how long a list of namespaces is cached: it costs one readlink per process.
	namespacesFor = 2 * time.Second
)

// Namespaces finds the network namespaces of a node, and caches them for a moment. It is not safe
// for concurrent use.
type Namespaces struct {
	fs     hostfs.FS
	answer time.Duration
	most   int // maximum length of list
	list   []hostfs.NetNamespace
	whole  bool // list has all of them
	at     time.Time
}

// NewNamespaces returns Namespaces that wait at most answer for each of the kernel's answers.
func NewNamespaces(fs hostfs.FS, answer time.Duration) *Namespaces {
	return &Namespaces{fs: fs, answer: answer, most: maxNamespaces}
}

// Open opens a namespace, through process pid if it is in the namespace, else (or with 0) through
// any other.
func (n *Namespaces) Open(inode uint32, pid int) (*View, error) {
	if pid != 0 {
		// A thread whose connect() failed may exit at any moment, also during this call.
		if v, err := Open(n.fs, inode, pid, n.answer); err == nil {
			return v, nil
		}
	}
	return Open(n.fs, inode, n.Process(inode), n.answer)
}

// Process returns a process of a namespace, or 0.
func (n *Namespaces) Process(inode uint32) int {
	find := func() int {
		for _, ns := range n.list {
			if ns.Inode == inode {
				// The process may have ended, and its number may have been reused.
				if got, err := n.fs.NetNS(ns.PID); err == nil && got == inode {
					return ns.PID
				}
			}
		}
		return 0
	}
	if pid := find(); pid != 0 {
		return pid
	}
	if n.Look() {
		return find()
	}
	return 0
}

// Look lists the network namespaces, unless it did so a moment ago, and reports whether it listed
// them.
func (n *Namespaces) Look() bool {
	now := time.Now()
	if now.Sub(n.at) < namespacesFor {
		return false
	}
	n.at = now
	list, err := n.fs.NetNamespaces(n.most)
	if n.whole = err == nil && len(list) < n.most; err != nil {
		return false
	}
	n.list = list
	return true
}

// Forget makes the next Look list them again, however new the list is.
func (n *Namespaces) Forget() { n.at = time.Time{} }

// Home is the namespace in which an address was found.
type Home struct {
	Inode   uint32 // 0: in none, in several, or not known
	Several bool   // in more than one namespace
	Whole   bool   // all namespaces were searched
}

// Home looks for the only namespace of the node that has addr as a local address, until end.
func (n *Namespaces) Home(addr netip.Addr, end time.Time) Home {
	n.Look()
	var h Home
	for _, ns := range n.list {
		if time.Now().After(end) {
			return Home{} // the one found may not be the only one
		}
		v, err := Open(n.fs, ns.Inode, ns.PID, n.answer)
		has := false
		if err == nil {
			has, err = v.Has(addr)
			v.Close()
		}
		if errors.Is(err, bounded.ErrLate) {
			return Home{} // it may be there
		}
		if err != nil || !has {
			continue
		}
		if h.Inode != 0 {
			return Home{Several: true, Whole: true}
		}
		h.Inode = ns.Inode
	}
	if !n.whole {
		return Home{} // it may be in a namespace that is not listed
	}
	h.Whole = true
	return h
}

// NodeNamespace returns the network namespace of the node's init, with a process in it: process 1
// or, if that may not be inspected, this process, which has the same namespace if the agent is on
// the host network.
func NodeNamespace(fs hostfs.FS) (inode uint32, pid int, err error) {
	if inode, err = fs.NetNS(1); err == nil {
		return inode, 1, nil
	}
	// Use the number in the node's /proc: in the agent's own it may differ.
	self, selfErr := os.Readlink(fs.Path("/proc/self"))
	pid, numErr := strconv.Atoi(self)
	if selfErr != nil || numErr != nil {
		return 0, 0, fmt.Errorf("network namespace of process 1: %w", err)
	}
	if inode, err = fs.NetNS(pid); err != nil {
		return 0, 0, err
	}
	return inode, pid, nil
}
