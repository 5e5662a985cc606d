package bpf

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// Kernel describes the running kernel, from its BTF.
type Kernel struct {
	mu    sync.Mutex
	types *btf.Cache
}

// ErrNoBTF: the kernel has no type information (CONFIG_DEBUG_INFO_BTF), so no CO-RE program loads.
var ErrNoBTF = errors.New("kernel has no BTF (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF)")

// OpenKernel loads the kernel's BTF. The error wraps [ErrNoBTF] where there is none.
func OpenKernel() (*Kernel, error) {
	k := &Kernel{types: btf.NewCache()}
	if _, err := k.types.Kernel(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBTF, err)
	}
	return k, nil
}

// cache returns the types, which all loaded programs share.
func (k *Kernel) cache() *btf.Cache {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.types
}

// Forget frees the memory of the types: 1.5 MiB, plus the pages of the kernel's own BTF that were
// read. The next lookup reads them again.
func (k *Kernel) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.types = btf.NewCache()
}

// typeByName finds a type of the kind that t points to.
func (k *Kernel) typeByName(name string, t any) error {
	spec, err := k.cache().Kernel()
	if err != nil {
		return err
	}
	return spec.TypeByName(name, t)
}

// TracepointArgs returns the types of the arguments that a tracepoint passes to its programs. ok is
// false if it is not in BTF: the kernel or the module lacks it, or the module has no BTF (5.10).
func (k *Kernel) TracepointArgs(name string) (args []btf.FuncParam, ok bool) {
	var def *btf.Typedef
	if err := k.typeByName("btf_trace_"+name, &def); err != nil {
		return nil, false
	}
	ptr, ok := def.Type.(*btf.Pointer)
	if !ok {
		return nil, false
	}
	proto, ok := ptr.Target.(*btf.FuncProto)
	if !ok || len(proto.Params) == 0 {
		return nil, false
	}
	return proto.Params[1:], true // the first is the registration's own data
}

// HasField reports whether the named struct has a direct member of this name.
func (k *Kernel) HasField(structName, field string) bool {
	var s *btf.Struct
	if k.typeByName(structName, &s) != nil {
		return false
	}
	return slices.ContainsFunc(s.Members, func(m btf.Member) bool { return m.Name == field })
}

// EnumNames returns the names of an enum's values, such as the kernel's drop
// reasons, whose numbers shift from release to release.
func (k *Kernel) EnumNames(name string) (map[uint64]string, error) {
	var e *btf.Enum
	if err := k.typeByName(name, &e); err != nil {
		return nil, fmt.Errorf("enum %s: %w", name, err)
	}
	names := make(map[uint64]string, len(e.Values))
	for _, v := range e.Values {
		names[v.Value] = v.Name
	}
	return names, nil
}
