package bpf

import (
	"errors"
	"reflect"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/btf"
)

// wireTypes pairs each Go mirror with its C struct and the object that contains it.
var wireTypes = []struct {
	stem, c string
	goType  reflect.Type
}{
	{StemOOMKill, "kn_header", reflect.TypeFor[Header]()},
	{StemOOMKill, "kn_task", reflect.TypeFor[Task]()},
	{StemOOMKill, "kn_chain", reflect.TypeFor[Chain]()},
	{StemOOMKill, "kn_canary", reflect.TypeFor[Canary]()},
	{StemOOMKill, "kn_oomkill", reflect.TypeFor[OOMKill]()},
	{StemDiskIO, "kn_diskio", reflect.TypeFor[DiskIO]()},
	{StemFSError, "kn_fserror", reflect.TypeFor[FSError]()},
	{StemHWError, "kn_hwerror", reflect.TypeFor[HWError]()},
	{StemHungTask, "kn_hungtask", reflect.TypeFor[HungTask]()},
	{StemHungTask, "kn_hungtask_resumed", reflect.TypeFor[HungTaskResumed]()},
	{StemHungTask, "kn_hungtask_sleep", reflect.TypeFor[HungTaskSleep]()},
	{StemHungTask, "kn_hungtask_settings", reflect.TypeFor[hungTaskSettings]()},
	{StemSockFail, "kn_sockfail", reflect.TypeFor[SockFail]()},
	{StemSockFail, "target_key", reflect.TypeFor[SockTargetKey]()},
	{StemSockFail, "target", reflect.TypeFor[SockTarget]()},
	{StemSockFail, "config", reflect.TypeFor[SockConfig]()},
	{StemSockFail, "target_outcome", reflect.TypeFor[SockOutcome]()},
	{StemSockFail, "pending", reflect.TypeFor[SockPending]()},
}

// The Go mirrors must match the compiler's layout, field by field.
func TestWireLayout(t *testing.T) {
	specs := map[string]*btf.Spec{}
	for _, s := range Stems() {
		spec, err := s.spec()
		if err != nil {
			t.Fatal(err)
		}
		specs[s.Name] = spec.Types
	}
	for _, w := range wireTypes {
		t.Run(w.c, func(t *testing.T) {
			var c *btf.Struct
			if err := specs[w.stem].TypeByName(w.c, &c); err != nil {
				t.Fatal(err)
			}
			if got, want := w.goType.Size(), uintptr(c.Size); got != want {
				t.Errorf("%s has %d bytes, C has %d", w.goType, got, want)
			}
			var fields []reflect.StructField
			for f := range w.goType.Fields() {
				if f.Name != "_" {
					fields = append(fields, f)
				}
			}
			if len(fields) != len(c.Members) {
				t.Fatalf("%s has %d fields, C has %d", w.goType, len(fields), len(c.Members))
			}
			for i, m := range c.Members {
				size, err := btf.Sizeof(m.Type)
				if err != nil {
					t.Fatal(err)
				}
				f := fields[i]
				if f.Offset != uintptr(m.Offset.Bytes()) || f.Type.Size() != uintptr(size) {
					t.Errorf("%s.%s is %d+%d, C's %s is %d+%d", w.goType, f.Name, f.Offset, f.Type.Size(), m.Name, m.Offset.Bytes(), size)
				}
			}
		})
	}
}

func FuzzParseHeader(f *testing.F) {
	good := make([]byte, unsafe.Sizeof(Canary{}))
	*(*Header)(unsafe.Pointer(&good[0])) = Header{Version: WireVersion, Kind: KindCanary, Size: uint32(len(good))}
	f.Add(good)
	f.Add(good[:10])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		// The ring aligns records to 8 bytes; a byte slice may not be aligned.
		words := make([]uint64, (len(raw)+7)/8)
		aligned := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)[:len(raw)]
		copy(aligned, raw)
		h, err := ParseHeader(aligned)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrForeignWire) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if int(h.Size) != len(raw) || h.Version != WireVersion {
			t.Fatalf("accepted %+v of %d bytes", *h, len(raw))
		}
	})
}
