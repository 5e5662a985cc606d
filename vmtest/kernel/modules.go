package kernel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Modules returns the files of the named modules and their dependencies, relative to ModulesDir and
// in load order, including soft dependencies (a filesystem looks up a checksum by name at mount
// time). Names are as for modprobe: "-" and "_" are equal, aliases are resolved. A module that is
// built into the kernel has no file. missing are the names that the kernel does not know.
func (i Image) Modules(names []string) (files, missing []string, err error) {
	// Without this index, modprobe finds no modules and reports no error.
	if _, err := os.Stat(filepath.Join(i.ModulesDir, "modules.dep.bin")); err != nil {
		return nil, nil, corrupt(i.Name, err)
	}
	root := strings.TrimSuffix(i.ModulesDir, filepath.Join("/lib/modules", i.Release))
	seen := map[string]bool{}
	for _, name := range names {
		// The host's modprobe.d does not apply to this kernel.
		c := command{name: "modprobe", args: []string{"-C", "/dev/null", "-d", root, "-S", i.Release, "--show-depends", "--", name}}
		out, err := c.run(context.Background())
		if complains(err, "not found in directory") {
			missing = append(missing, name)
			continue
		} else if err != nil {
			return nil, nil, fmt.Errorf("modules of kernel %s: %w", i.Name, err)
		}
		found, err := parseDepends(string(out), i.Release)
		if err != nil {
			return nil, nil, fmt.Errorf("modules of kernel %s: %s: %w", i.Name, name, err)
		}
		for _, f := range found {
			if !seen[f] {
				seen[f] = true
				files = append(files, f)
			}
		}
	}
	return files, missing, nil
}

// parseDepends parses the output of modprobe --show-depends: per line "builtin NAME" or "insmod
// …/modules/RELEASE/PATH OPTIONS".
func parseDepends(out, release string) ([]string, error) {
	var files []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "builtin "):
		case strings.HasPrefix(line, "insmod "):
			dir := "/modules/" + release + "/"
			at := strings.LastIndex(line, dir)
			if at < 0 {
				return nil, fmt.Errorf("modprobe says %q, which is not below modules/%s", line, release)
			}
			path, _, _ := strings.Cut(line[at+len(dir):], " ")
			files = append(files, path)
		default:
			return nil, fmt.Errorf("modprobe says %q", line)
		}
	}
	return files, nil
}
