package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Config is the contents of a vm.yaml: the hardware of a machine, and the files that are packed
// into it besides the test binary.
type Config struct {
	Memory   string   `yaml:"memory"`   // a whole number of MiB or GiB
	CPUs     int      `yaml:"cpus"`     // 1 to 64
	Load     []string `yaml:"load"`     // modules to load at start if the kernel has them; parameters follow the name
	Modules  []string `yaml:"modules"`  // modules to pack if the kernel has them
	Programs []string `yaml:"programs"` // to pack with their libraries, by name, from PATH
	Files    []string `yaml:"files"`    // to pack at the same path
	QEMU     []string `yaml:"qemu"`     // additional arguments of qemu
}

var memorySize = regexp.MustCompile(`^[1-9][0-9]{0,5}[MG]iB$`)

// LoadConfig reads a vm.yaml. Paths in it are relative to its folder; the Config's paths are
// absolute. Errors name file and line.
func LoadConfig(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := parseConfig(raw)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	for i, f := range c.Files {
		if !filepath.IsAbs(f) {
			f = filepath.Join(filepath.Dir(path), f)
		}
		if c.Files[i], err = filepath.Abs(f); err != nil {
			return Config{}, fmt.Errorf("%s: files[%d]: %w", path, i, err)
		}
	}
	return c, nil
}

func parseConfig(raw []byte) (Config, error) {
	c := Config{Memory: "1GiB", CPUs: 2}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) { // an empty file means the defaults
		return Config{}, err
	}
	return c, c.Check()
}

// Check returns an error for settings that no machine can have.
func (c Config) Check() error {
	if !memorySize.MatchString(c.Memory) {
		return fmt.Errorf("memory: %q is no size such as 512MiB or 2GiB", c.Memory)
	}
	if c.CPUs < 1 || c.CPUs > 64 {
		return fmt.Errorf("cpus: %d is not within 1 and 64", c.CPUs)
	}
	for field, list := range map[string][]string{"load": c.Load, "modules": c.Modules, "programs": c.Programs, "files": c.Files, "qemu": c.QEMU} {
		for i, v := range list {
			if v == "" {
				return fmt.Errorf("%s[%d]: is empty", field, i)
			}
		}
	}
	return nil
}

// memoryArg returns the size in the format of qemu.
func (c Config) memoryArg() string { return strings.TrimSuffix(c.Memory, "iB") }
