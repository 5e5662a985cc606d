package kernel

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// minString is the minimum length of a string, similar to strings(1).
const minString = 6

// kernelStrings returns the path of a file with the printable strings of the kernel and its
// modules, one per line, including the format strings, each after its log level as KERN_SOH and a
// digit or letter. The file is created once, because extracting them takes ten seconds and more, and removed
// with the image.
func kernelStrings(t *testing.T, i Image) (path string) {
	t.Helper()
	path = filepath.Join(filepath.Dir(i.Vmlinuz), "formats")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "formats.*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(tmp.Name())
	out := bufio.NewWriterSize(tmp, 1<<20)
	printable(decompress(t, payload([]byte(read(t, i.Vmlinuz)))), out)
	var modules []string
	err = filepath.WalkDir(i.ModulesDir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(d.Name(), ".ko") {
			modules = append(modules, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// One process for each of four thousand modules would take a minute.
	for chunk := range slices.Chunk(modules, 200) {
		printable(contents(t, chunk), out)
	}
	if err := errors.Join(out.Flush(), tmp.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// payload returns the compressed kernel of an x86 boot image (Documentation/arch/x86/boot.rst:
// setup_sects, payload_offset, payload_length). It returns other images unchanged.
func payload(image []byte) []byte {
	if len(image) < 0x250 || string(image[0x202:0x206]) != "HdrS" {
		return image
	}
	sectors := int(image[0x1f1])
	if sectors == 0 {
		sectors = 4
	}
	from := (sectors+1)*512 + int(binary.LittleEndian.Uint32(image[0x248:]))
	to := from + int(binary.LittleEndian.Uint32(image[0x24c:]))
	if from < 0 || to > len(image) || from > to {
		return image
	}
	return image[from:to]
}

// decompress recognises the compression by the first bytes; lz4's are those of the legacy frame.
func decompress(t *testing.T, data []byte) []byte {
	t.Helper()
	for magic, program := range map[string]string{"\x28\xb5\x2f\xfd": "zstd", "\xfd7zXZ\x00": "xz", "\x02\x21\x4c\x18": "lz4", "\x1f\x8b": "gzip"} {
		if !bytes.HasPrefix(data, []byte(magic)) {
			continue
		}
		path, err := FindProgram(program)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, "-dc")
		cmd.Stdin = bytes.NewReader(data)
		out, err := cmd.Output()
		// The payload is followed by its size, about which the programs complain.
		if len(out) == 0 && err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		return out
	}
	return data
}

// contents returns the concatenated contents of modules, decompressed. All must use the same
// compression.
func contents(t *testing.T, modules []string) []byte {
	t.Helper()
	args := map[string][]string{".xz": {"xz", "-dc"}, ".zst": {"zstd", "-dc"}, ".gz": {"gzip", "-dc"}, ".ko": {"cat"}}[filepath.Ext(modules[0])]
	out, err := command{name: args[0], args: slices.Concat(args[1:], []string{"--"}, modules)}.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// printable writes the strings in data that may be formats: those with a space or a conversion. A
// newline in a format starts a new line of the output.
func printable(data []byte, out *bufio.Writer) {
	var level []byte
	for len(data) > 0 {
		n := 0
		for n < len(data) && (data[n] >= ' ' && data[n] <= '~' || data[n] == '\t') {
			n++
		}
		if n >= minString && bytes.ContainsAny(data[:n], " %") {
			out.Write(level)
			out.Write(data[:n])
			out.WriteByte('\n')
		}
		level = nil
		if n+1 < len(data) && data[n] == soh && bytes.IndexByte([]byte("01234567cd"), data[n+1]) >= 0 {
			level = data[n : n+2]
			n++
		}
		data = data[min(n+1, len(data)):]
	}
}

// soh is KERN_SOH: the level of a message follows.
const soh = 1
