package kernel

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// stringsFile is the file that caches an image's strings: extracting them takes ten seconds and
// more.
const stringsFile = "strings"

// minString is the minimum length of a string, similar to strings(1).
const minString = 6

// Strings returns the path of a file with the printable strings of the kernel and its modules, one
// per line, including the format strings. The file is created once and removed with the image.
func (i Image) Strings(ctx context.Context) (path string, err error) {
	path = filepath.Join(filepath.Dir(i.Vmlinuz), stringsFile)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), stringsFile+".*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // renamed where all went well
	out := bufio.NewWriterSize(tmp, 1<<20)
	err = i.writeStrings(ctx, out)
	for _, done := range []func() error{out.Flush, tmp.Close} {
		if e := done(); err == nil {
			err = e
		}
	}
	if err != nil {
		return "", fmt.Errorf("strings of kernel %s: %w", i.Name, err)
	}
	return path, os.Rename(tmp.Name(), path)
}

func (i Image) writeStrings(ctx context.Context, out *bufio.Writer) error {
	data, err := os.ReadFile(i.Vmlinuz)
	if err != nil {
		return err
	}
	if data, err = decompress(ctx, payload(data)); err != nil {
		return err
	}
	printable(data, out)
	var modules []string
	err = filepath.WalkDir(i.ModulesDir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(d.Name(), ".ko") {
			modules = append(modules, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	// One process for each of four thousand modules would take a minute.
	for chunk := range slices.Chunk(modules, 200) {
		if data, err = contents(ctx, chunk); err != nil {
			return err
		}
		printable(data, out)
	}
	return nil
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

// decompressors maps the first bytes of compressed data to the program that decompresses it. lz4's
// are those of the legacy frame.
func decompressors() map[string]string {
	return map[string]string{"\x28\xb5\x2f\xfd": "zstd", "\xfd7zXZ\x00": "xz", "\x02\x21\x4c\x18": "lz4", "\x1f\x8b": "gzip"}
}

func decompress(ctx context.Context, data []byte) ([]byte, error) {
	for magic, program := range decompressors() {
		if !bytes.HasPrefix(data, []byte(magic)) {
			continue
		}
		f, err := os.CreateTemp("", "payload")
		if err != nil {
			return nil, err
		}
		defer os.Remove(f.Name()) //nolint:errcheck // in the folder for temporary files
		defer f.Close()           //nolint:errcheck // written below
		if _, err := f.Write(data); err != nil {
			return nil, err
		}
		if _, err := f.Seek(0, 0); err != nil {
			return nil, err
		}
		out, err := command{name: program, args: []string{"-dc"}, stdin: f}.run(ctx)
		// The payload is followed by its size, about which the programs complain.
		if len(out) == 0 && err != nil {
			return nil, err
		}
		return out, nil
	}
	return data, nil
}

// contents returns the concatenated contents of modules, decompressed. All must use the same
// compression.
func contents(ctx context.Context, modules []string) ([]byte, error) {
	program := map[string]string{".xz": "xz", ".zst": "zstd", ".gz": "gzip", ".ko": "cat"}[filepath.Ext(modules[0])]
	args := []string{"-dc", "--"}
	if program == "cat" {
		args = []string{"--"}
	}
	return command{name: program, args: append(args, modules...)}.run(ctx)
}

// printable writes the strings in data that may be formats: those with a space or a conversion. A
// newline in a format starts a new line of the output; the log level before the format (KERN_SOH
// and a digit) is omitted.
func printable(data []byte, out *bufio.Writer) {
	for len(data) > 0 {
		n := 0
		for n < len(data) && (data[n] >= ' ' && data[n] <= '~' || data[n] == '\t') {
			n++
		}
		if n >= minString && bytes.ContainsAny(data[:n], " %") {
			out.Write(data[:n]) //nolint:errcheck // Flush returns the error
			out.WriteByte('\n') //nolint:errcheck // Flush returns the error
		}
		if n < len(data) && data[n] == 1 {
			n++
		}
		data = data[min(n+1, len(data)):]
	}
}
