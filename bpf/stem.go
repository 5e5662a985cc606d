package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Stem is the blueprint of one fault family: an object and how its programs
// reach the kernel. See [Open] for the live thing.
type Stem struct {
	Name string

	object []byte
	spec   func() (*ebpf.CollectionSpec, error)
	// configure sets constants that follow from the kernel's BTF.
	configure func(*ebpf.CollectionSpec, *Kernel) error
	hooks     []hook
	// unattached programs are run by the agent itself: the canary, iterators.
	unattached []string
}

// hook is a place in the kernel that the stem wants to see.
type hook struct {
	name     string
	optional bool // the stem is complete without it
	// onDemand: attached by Loaded.Attach only. One that the stem can't do without is
	// tried when it opens.
	onDemand bool
	variants []variant
	// adds: its programs add to what other hooks tell, or have it told sooner: runs
	// that were skipped lose no record.
	adds bool
}

// variant is one program that can serve a hook, best first in the hook's list.
type variant struct {
	program string
	attach  attacher
	// usable says from BTF why the variant can't serve this kernel; nil: try it.
	usable func(*Kernel) error
}

// attacher links a loaded program to its hook. The caller owns the link.
type attacher func(*ebpf.Program) (link.Link, error)

func rawTracepoint(name string) attacher {
	return func(p *ebpf.Program) (link.Link, error) {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: p})
	}
}

// tracing attaches tp_btf, fentry and fexit programs: the target is part of
// the program.
func tracing() attacher {
	return func(p *ebpf.Program) (link.Link, error) {
		return link.AttachTracing(link.TracingOptions{Program: p})
	}
}

func kprobe(function string) attacher {
	return func(p *ebpf.Program) (link.Link, error) {
		// Every kernel since v4.17 that has kprobes for events shows them here.
		if _, err := os.Stat("/sys/bus/event_source/devices/kprobe"); err != nil {
			return nil, fmt.Errorf("%w: kprobe events (CONFIG_KPROBES, CONFIG_KPROBE_EVENTS)", errAbsent)
		}
		return link.Kprobe(function, p, nil)
	}
}

// Stems returns the blueprints of all fault families.
func Stems() []Stem {
	return []Stem{oomkill(), hungtask(), sockfail(), diskio(), fserror()}
}

// id names the object and wire version: what is pinned under another id was
// made by another build.
func (s *Stem) id() string {
	h := sha256.New()
	h.Write([]byte{WireVersion})
	h.Write(s.object)
	return hex.EncodeToString(h.Sum(nil))[:12]
}

const canaryProgram = "canary"
