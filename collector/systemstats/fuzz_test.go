package systemstats

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A value is the same however it is quoted, behind whatever text.
func FuzzParseOSRelease(f *testing.F) {
	f.Add("PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nVERSION_ID=\"13\"\nID=debian\n", `13 "$x" \ `)
	f.Add("# a comment\nNAME='Container-Optimized OS'\nBUILD_ID=17412.1.1\r\n=\n\"\n", "`'")
	f.Fuzz(func(t *testing.T, before, value string) {
		if value = strings.TrimSpace(value); strings.ContainsAny(value, "\r\n\x00") || len(before)+len(value) > 32<<10 {
			return
		}
		before += "\n"
		want := parseOSRelease(before)
		want["X"] = value
		forms := []string{`X="` + strings.NewReplacer(`"`, `\"`, `$`, `\$`, `\`, `\\`, "`", "\\`").Replace(value) + `"`}
		if !strings.Contains(value, "'") {
			forms = append(forms, "X='"+value+"'")
		}
		for _, form := range forms {
			if got := parseOSRelease(before + form + "\n"); !maps.Equal(got, want) {
				t.Errorf("%q: %q, want %q", before+form, got, want)
			}
		}
	})
}

// The last of several equal parameters counts, quoted or not.
func FuzzParseCmdline(f *testing.F) {
	f.Add(`BOOT_IMAGE=/vmlinuz root=UUID=x ro "dyndbg=file a.c +p"`, "module.sig_enforce", "1")
	f.Add("systemd.unified_cgroup_hierarchy=1 a=\"b c\"\n", "a", "b  c")
	f.Add("csm.enabled=1\f", "csm.enabled", "0")
	f.Fuzz(func(t *testing.T, before, name, value string) {
		if parseCmdline(before); strings.Count(before, `"`)%2 != 0 || name == "" || strings.ContainsAny(name, " \t\n\v\f\r\"'=") || strings.ContainsAny(value, "\"'\n") {
			return
		}
		want := parseCmdline(before)
		want[name] = value
		forms := []string{name + `="` + value + `"`, `"` + name + "=" + value + `"`}
		if !strings.ContainsAny(value, " \t\v\f\r") {
			forms = append(forms, name+"="+value)
		}
		for _, form := range forms {
			if got := parseCmdline(before + " " + form + "\n"); !maps.Equal(got, want) {
				t.Errorf("%q: %q, want %q", before+" "+form, got, want)
			}
		}
	})
}

// The list has the module of each entry, or there is an error.
func FuzzKnownModules(f *testing.F) {
	f.Add([]byte(`[{"moduleName":"crypto_simd","proprietary":false},{"moduleName":"virtio_net"}]`))
	f.Add([]byte(`[{"module":"a"}]`))
	f.Add([]byte("null"))
	path := filepath.Join(f.TempDir(), "known-modules.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		known, err := knownModules(path, slog.New(slog.DiscardHandler))
		if err != nil {
			return
		}
		var list []map[string]any
		if err := json.Unmarshal(text, &list); err != nil || known[""] || len(known) > len(list) {
			t.Errorf("%q: %v, %v", text, known, err)
		}
		for _, m := range list {
			if name, ok := m["moduleName"].(string); ok && !known[name] {
				t.Errorf("%q: no %q in %v", text, name, known)
			}
		}
	})
}
