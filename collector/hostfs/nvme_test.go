package hostfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"math/bits"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// The kernel refuses a command whose struct has another size.
func TestNVMeCommandIsTheKernels(t *testing.T) {
	const want = nvmeAdminIoctl >> 16 & 0x3fff
	if size := unsafe.Sizeof(nvmeAdminCommand{}); size != want {
		t.Errorf("%d bytes, the ioctl says %d", size, want)
	}
}

func TestParseNVMeHealth(t *testing.T) {
	b := make([]byte, nvmeHealthSize)
	b[0] = 1<<0 | 1<<3
	binary.LittleEndian.PutUint16(b[1:], 313)
	b[3], b[4], b[5] = 4, 10, 103
	for at, n := range map[int]uint64{32: 2, 48: 3, 112: 5, 128: 6, 144: 7, 160: 8, 176: 9} {
		binary.LittleEndian.PutUint64(b[at:], n)
	}
	got, err := ParseNVMeHealth(b)
	want := NVMeHealth{
		Warnings: []string{"spare", "read-only"}, Temperature: 40, Spare: 4, SpareThreshold: 10, Used: 103, ReadBytes: 1024000,
		WrittenBytes: 1536000, PowerCycles: 5, PowerOnHours: 6, UnsafeShutdowns: 7, MediaErrors: 8, ErrorEntries: 9,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	binary.LittleEndian.PutUint64(b[168:], 1)
	if got, _ := ParseNVMeHealth(b); got.MediaErrors != math.MaxUint64 {
		t.Errorf("%d", got.MediaErrors)
	}
	if _, err := ParseNVMeHealth(b[:100]); err == nil {
		t.Error("a short page")
	}
}

// Each counter has its value, or the maximum of 64 bits if it is larger.
func FuzzParseNVMeHealth(f *testing.F) {
	page := make([]byte, nvmeHealthSize)
	copy(page, "\x09\x39\x01\x04\x0a\x67")
	for at := 32; at < 192; at += 16 {
		page[at], page[at+6] = byte(at), byte(at/64)
	}
	f.Add(page)
	f.Add(append(page, bytes.Repeat([]byte{0xff}, 10)...))
	f.Add(bytes.Repeat([]byte{0xff}, nvmeHealthSize))
	f.Add(page[:511])
	f.Fuzz(func(t *testing.T, page []byte) {
		h, err := ParseNVMeHealth(page)
		if (err == nil) != (len(page) >= nvmeHealthSize) {
			t.Fatalf("%d bytes: %v", len(page), err)
		}
		if err != nil {
			return
		}
		counter := func(at int, unit int64) uint64 {
			b := slices.Clone(page[at : at+16])
			slices.Reverse(b)
			n := new(big.Int).Mul(new(big.Int).SetBytes(b), big.NewInt(unit))
			if !n.IsUint64() {
				return math.MaxUint64
			}
			return n.Uint64()
		}
		want := NVMeHealth{
			Warnings: h.Warnings, Temperature: int(page[1]) + int(page[2])<<8 - 273, Spare: int(page[3]), SpareThreshold: int(page[4]), Used: int(page[5]),
			ReadBytes: counter(32, 512_000), WrittenBytes: counter(48, 512_000), PowerCycles: counter(112, 1), PowerOnHours: counter(128, 1),
			UnsafeShutdowns: counter(144, 1), MediaErrors: counter(160, 1), ErrorEntries: counter(176, 1),
		}
		if diff := cmp.Diff(want, h); diff != "" || len(h.Warnings) != bits.OnesCount8(page[0]&0x3f) {
			t.Errorf("%q: %s", h.Warnings, diff)
		}
	})
}

// Devices that are not NVMe are refused: a file with such a name, and this machine's disks.
func TestNVMeHealthOfOthers(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(root+"/dev", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/dev/nvme0n1", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for disk, f := range map[string]FS{"nvme0n1": New(root), "vda": {}, "../x": New("/proc")} {
		if h, err := f.NVMeHealth(disk); !errors.Is(err, ErrNoNVMe) {
			t.Errorf("%s: %+v, %v", disk, h, err)
		}
	}
	if _, err := New(root).NVMeHealth("nvme9n9"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestNVMeHead(t *testing.T) {
	for path, want := range map[string]string{
		"nvme0c1n2": "nvme0n2", "nvme10c22n3": "nvme10n3",
		"nvme0n1": "", "nvme0c1": "", "nvme0c1n": "", "sda": "", "nvmec1n1": "", "nvme0c1n1p1": "",
	} {
		if got, ok := NVMeHead(path); got != want || ok != (want != "") {
			t.Errorf("%s: %q %v, want %q", path, got, ok, want)
		}
		if is := IsNVMePath(path); is != (want != "") {
			t.Errorf("%s is a path: %v", path, is)
		}
	}
}
