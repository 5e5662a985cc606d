package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// modulePath is the path of the module that programs are built from.
const modulePath = "github.com/kernosis/kernosis"

// program is a kernosis executable built for one platform.
type program struct {
	platform ocispec.Platform
	content  []byte
	info     *debug.BuildInfo
}

// String returns the platform, such as linux/arm64.
func (p *program) String() string { return p.platform.OS + "/" + p.platform.Architecture }

// readProgram reads a program and checks that it was built like a release, which makes the build
// reproducible on any machine and in any folder.
func readProgram(path string) (*program, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if want := modulePath + "/cmd/kernosis"; info.Path != want {
		return nil, fmt.Errorf("contains %s, not %s", info.Path, want)
	}
	set := map[string]string{}
	for _, b := range info.Settings {
		set[b.Key] = b.Value
	}
	want := settings(set["GOARCH"])
	keys := maps.Clone(set)
	maps.Copy(keys, want)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if set[key] != want[key] {
			errs = append(errs, fmt.Errorf("built with %s=%q, want %q: use make binaries", key, set[key], want[key]))
		}
	}
	if err := errors.Join(append(errs, static(content))...); err != nil {
		return nil, err
	}
	p := &program{platform: ocispec.Platform{OS: set["GOOS"], Architecture: set["GOARCH"]}, content: content, info: info}
	if p.platform.Architecture == "arm64" {
		p.platform.Variant = "v8" // runtimes use this variant for every arm64
	}
	return p, nil
}

// settings returns the build settings that a program must have. It may have no others, such as the
// VCS state of a checkout, which an unpacked archive does not have.
func settings(arch string) map[string]string {
	all := map[string]string{
		"-buildmode": "exe", "-compiler": "gc", "-tags": "grpcnotrace", "-trimpath": "true", "CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": arch,
	}
	switch arch { // the oldest supported processors
	case "amd64":
		all["GOAMD64"] = "v1"
	case "arm64":
		all["GOARM64"] = "v8.0"
	default:
		all["GOARCH"] = "amd64 or arm64"
	}
	return all
}

// static returns an error if a program needs a dynamic loader: the image has none.
func static(content []byte) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("is dynamically linked: use make binaries")
		}
	}
	return nil
}
