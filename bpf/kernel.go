package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// Kernel answers what the running kernel looks like, from its BTF. It is read
// once and never changes.
type Kernel struct {
	spec *btf.Spec
}

// ErrNoBTF: the kernel has no type information (CONFIG_DEBUG_INFO_BTF), so no
// CO-RE program can be loaded.
var ErrNoBTF = errors.New("kernel has no BTF (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF)")

// OpenKernel loads the kernel's BTF. The error wraps [ErrNoBTF] where there is
// none.
func OpenKernel() (*Kernel, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBTF, err)
	}
	return &Kernel{spec: spec}, nil
}

// TracepointArgs returns the types of the arguments that a tracepoint hands to
// its programs. ok is false where BTF does not know the tracepoint: the kernel
// or the module that has it is missing, or the module has no BTF (5.10).
func (k *Kernel) TracepointArgs(name string) (args []btf.FuncParam, ok bool) {
	var def *btf.Typedef
	if err := k.spec.TypeByName("btf_trace_"+name, &def); err != nil {
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

// HasStruct reports whether the kernel has a struct of this name.
func (k *Kernel) HasStruct(name string) bool {
	var s *btf.Struct
	return k.spec.TypeByName(name, &s) == nil
}

// HasField reports whether the named struct has a direct member of this name.
func (k *Kernel) HasField(structName, field string) bool {
	var s *btf.Struct
	if k.spec.TypeByName(structName, &s) != nil {
		return false
	}
	for _, m := range s.Members {
		if m.Name == field {
			return true
		}
	}
	return false
}

// EnumNames returns the names of an enum's values, such as the kernel's drop
// reasons, whose numbers shift from release to release.
func (k *Kernel) EnumNames(name string) (map[uint64]string, error) {
	var e *btf.Enum
	if err := k.spec.TypeByName(name, &e); err != nil {
		return nil, fmt.Errorf("enum %s: %w", name, err)
	}
	names := make(map[uint64]string, len(e.Values))
	for _, v := range e.Values {
		names[v.Value] = v.Name
	}
	return names, nil
}
