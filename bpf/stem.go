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

// Stem is the blueprint of a fault family for [Open]: an object and how its programs are attached.
type Stem struct {
	Name string

	object []byte
	spec   func() (*ebpf.CollectionSpec, error)
	// configure sets constants derived from the kernel's BTF.
	configure func(*ebpf.CollectionSpec, *Kernel) error
	hooks     []hook
	// unattached programs are run by the agent itself, like the canary that each stem has.
	unattached []string
	// shares: builds with the same layout share all maps except those of the ring, and if programs
	// of two builds are attached, the one that runs first handles the fault for both. So a fault
	// that begins before an upgrade continues after it, and is recorded once.
	shares bool
	// demands reports whether an earlier run's state requires on-demand hooks at once; nil: never.
	demands func(*Loaded) (bool, error)
	// takeCounts takes over another build's counts, from its pin folder; nil: it has only losses.
	takeCounts func(l *Loaded, dir string) error
}

// hook is a place in the kernel that the stem observes.
type hook struct {
	name     string
	optional bool // the stem is complete without it
	// ofFeature: the stem is complete without it on kernels that are built without the feature.
	ofFeature bool
	// onDemand: attached by Loaded.Attach only. If it is not optional, Open tries it once.
	onDemand bool
	variants []variant
	// adds: its programs only add to other hooks' reports, or report sooner: skips lose nothing.
	adds bool
}

// variant is one program that can serve a hook. A hook lists the best one first.
type variant struct {
	program string
	attach  attacher
	// usable returns the reason, from BTF, why this kernel can't run the variant; nil: try it.
	usable func(*Kernel) error
	// mayDie: its link never fires again once the function's module was unloaded, and before v6.6 the
	// link's info does not show that. So a link that an earlier run pinned is replaced, not adopted.
	mayDie bool
}

// attacher attaches a loaded program to its hook. The caller owns the link.
type attacher func(*ebpf.Program) (link.Link, error)

func rawTracepoint(name string) attacher {
	return func(p *ebpf.Program) (link.Link, error) {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: p})
	}
}

// builtIn is for [variant.usable] of a tracepoint that is never a module's.
func builtIn(tracepoint string) func(*Kernel) error {
	return func(k *Kernel) error {
		if _, ok := k.TracepointArgs(tracepoint); !ok {
			return fmt.Errorf("tracepoint %s: not in BTF", tracepoint)
		}
		return nil
	}
}

// tracing attaches tp_btf, fentry and fexit programs: the target is part of the program.
func tracing() attacher {
	return func(p *ebpf.Program) (link.Link, error) {
		return link.AttachTracing(link.TracingOptions{Program: p})
	}
}

func kprobe(function string) attacher {
	return func(p *ebpf.Program) (link.Link, error) {
		// Every kernel since v4.17 that supports kprobe events has this folder.
		if _, err := os.Stat("/sys/bus/event_source/devices/kprobe"); err != nil {
			return nil, fmt.Errorf("%w: kprobe events (CONFIG_KPROBES, CONFIG_KPROBE_EVENTS)", errAbsent)
		}
		return link.Kprobe(function, p, nil)
	}
}

// Stems returns the blueprints of all fault families.
func Stems() []Stem {
	return []Stem{oomkill(), hungtask(), sockfail(), diskio(), fserror(), hwerror()}
}

// id identifies the maps' layout, the object and the wire version: another id is another build's.
func (s *Stem) id(layout string) string {
	return layout + "-" + digest([]byte{WireVersion}, s.object)
}

// layout identifies the layout of the maps that builds share: types, sizes and fields. If only the
// meaning changes, WireVersion must change.
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
