package systemstats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// maxUnknown bounds the unknown modules that are reported by name.
const maxUnknown = 32

// knownModules reads the list of modules that are not reported as unknown: a JSON list of objects
// with moduleName. A missing file is an empty list, as in node-problem-detector, whose
// configuration names a file that few nodes have.
func knownModules(path string, log *slog.Logger) (map[string]bool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		log.Warn("every module from outside the kernel's tree is reported as unknown", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []struct{ ModuleName string }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	known := map[string]bool{}
	for i, m := range list {
		if m.ModuleName == "" {
			return nil, fmt.Errorf("%s: entry %d has no moduleName", path, i+1)
		}
		known[m.ModuleName] = true
	}
	return known, nil
}

// osFeature reads the kernel's command line and its modules.
func (c *Collector) osFeature(s *sample) error {
	var errs []error
	feature := func(name string, on bool, value string) {
		n := 0.0
		if on {
			n = 1
		}
		s.add("system/os_feature", n, name, value)
	}
	if line, err := os.ReadFile(c.set.proc("cmdline")); err != nil {
		errs = append(errs, err)
	} else {
		args := parseCmdline(string(line))
		feature("KTD", args["csm.enabled"] == "1", "")
		unified, said := args["systemd.unified_cgroup_hierarchy"]
		feature("UnifiedCgroupHierarchy", isTrue(unified) || !said && exists(c.set.sys("fs/cgroup/cgroup.controllers")), "")
		feature("KernelModuleIntegrity", args["module.sig_enforce"] == "1" && args["loadpin.enabled"] == "1", "")
	}
	// A kernel without module support has no such file.
	if text, err := os.ReadFile(c.set.proc("modules")); err == nil {
		gpu, unknown := judgeModules(hostfs.ParseModules(string(text)), c.modules)
		feature("UnknownModules", len(unknown) > 0, moduleList(unknown))
		feature("GPUSupport", gpu, "")
	} else if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// isTrue parses a boolean of systemd.
func isTrue(s string) bool { return s == "1" || s == "yes" || s == "true" || s == "on" }

// parseCmdline returns the parameters of a kernel's command line. Values may be quoted; if a
// parameter occurs several times, the last one counts.
func parseCmdline(line string) map[string]string {
	args, quoted := map[string]string{}, false
	for _, word := range strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && strings.ContainsRune(" \t\n\v\f\r", r)
	}) {
		name, value, _ := strings.Cut(strings.Trim(word, `"`), "=")
		args[name] = strings.Trim(value, `"'`)
	}
	return args
}

// judgeModules reports whether there is a GPU module, and returns which other modules are
// proprietary or out-of-tree and not known.
func judgeModules(all []hostfs.Module, known map[string]bool) (gpu bool, unknown []string) {
	for _, m := range all {
		switch {
		case strings.Contains(m.Name, "nvidia"):
			gpu = true
		case strings.ContainsAny(m.Taint, "PO") && !known[m.Name]:
			unknown = append(unknown, m.Name)
		}
	}
	return gpu, unknown
}

// moduleList joins names; those beyond maxUnknown are only counted.
func moduleList(names []string) string {
	more := len(names) - maxUnknown
	text := strings.Join(names[:min(len(names), maxUnknown)], ",")
	if more > 0 {
		text += fmt.Sprintf(",+%d", more)
	}
	return display.Safe(text, 2048)
}
