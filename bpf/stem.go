package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
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
	// shares: all maps but those of the ring are the same for builds of one layout, and
	// which of two attached programs comes first acts for both. So what an upgrade finds
	// begun goes on, and has one record.
	shares bool
	// demands says by the state that an earlier run left whether on-demand hooks are needed
	// at once; nil: they never are.
	demands func(*Loaded) (bool, error)
	// takeCounts takes over what another build counted, from its folder of pins; nil: the
	// stem counts only what it loses.
	takeCounts func(l *Loaded, dir string) error
}

// hook is a place in the kernel that the stem wants to see.
type hook struct {
	name     string
	optional bool // the stem is complete without it
	// onDemand: attached by Loaded.Attach only. One that the stem can't do without is
	// tried when it opens.
	onDemand bool
	variants []variant
	// adds: its programs add to what other hooks tell, or have it reported sooner: runs
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

// id names the layout of the maps, the object and the wire version: what is pinned under
// another id was made by another build.
func (s *Stem) id(layout string) string {
	return layout + "-" + digest([]byte{WireVersion}, s.object)
}

// layout names what the maps are like that builds share: types, sizes and fields. A change
// of meaning that keeps all of these needs another WireVersion.
func (s *Stem) layout(spec *ebpf.CollectionSpec) (string, error) {
	if !s.shares {
		return "own", nil
	}
	parts := [][]byte{{WireVersion}}
	var types btf.GoFormatter
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		if isConstants(name) || isOfRing(name) {
			continue
		}
		parts = append(parts, fmt.Appendf(nil, "%s %s %d %d %d %d\n", name, m.Type, m.KeySize, m.ValueSize, m.MaxEntries, m.Flags))
		for _, of := range []btf.Type{m.Key, m.Value} {
			text, err := types.TypeDeclaration("t", of)
			if err != nil {
				return "", fmt.Errorf("layout of map %s: %w", name, err)
			}
			parts = append(parts, []byte(text))
		}
	}
	return digest(parts...), nil
}

func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

const canaryProgram = "canary"
