package conditions

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kernosis/kernosis/collector/statefile"
)

// FuzzOwns compares with the API server's own parser of managed fields.
func FuzzOwns(f *testing.F) {
	const key = `k:{"type":"KernelDeadlock"}`
	f.Add([]byte(`{"f:status":{"f:conditions":{".":{},"` + `k:{\"type\":\"KernelDeadlock\"}` + `":{".":{},"f:lastHeartbeatTime":{},"f:reason":{},"f:type":{}}}}}`))
	f.Add([]byte(`{"f:metadata":{"f:labels":{"f:a":{}}},"f:status":{"f:conditions":{"k:{\"type\":\"KernelDeadlock\"}":{"f:lastHeartbeatTime":{}}}}}`))
	f.Add([]byte(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:status":{}},"k:{\"type\":\"KernelDeadlock\"}":{"f:status":{"v:\"True\"":{}}}}}}`))
	f.Fuzz(func(t *testing.T, fields []byte) {
		owns(fields, key)
		var set fieldpath.Set
		if set.FromJSON(bytes.NewReader(fields)) != nil {
			return
		}
		want := false
		set.Iterate(func(p fieldpath.Path) {
			want = want || slices.ContainsFunc([]string{"status", "reason", "message"}, func(field string) bool {
				below, ok := strings.CutPrefix(p.String(), `.status.conditions[type="KernelDeadlock"].`+field)
				return ok && (below == "" || below[0] == '.' || below[0] == '[')
			})
		})
		if fields, err := set.ToJSON(); err != nil || owns(fields, key) != want {
			t.Errorf("%s: want %v, %v", fields, want, err)
		}
	})
}

// The state file decides which conditions are removed: no damage names others, and each file that is not
// of another node is read as a whole, or reported.
func FuzzReadState(f *testing.F) {
	f.Add([]byte(`{"node":"n","types":["OldType","Ready","example.com/B"]}`))
	f.Add([]byte(`{"node":"n","types":null,"version":1}`))
	f.Add([]byte("null"))
	f.Add([]byte("{}"))
	f.Add(make([]byte, 64))
	path := filepath.Join(f.TempDir(), "conditions.json")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		types, err := readState(path, "n")
		if err != nil {
			if kept, readErr := os.ReadFile(path + ".unread"); types != nil || !bytes.Equal(kept, content) {
				t.Errorf("%q: %q, kept %q, %v, %v", content, types, kept, err, readErr)
			}
			return
		}
		var w written
		if err := json.Unmarshal(content, &w); err != nil || w.Node == "" || w.Node != "n" && types != nil ||
			slices.ContainsFunc(types, func(name string) bool { return CheckType(name) != nil || !slices.Contains(w.Types, name) }) {
			t.Errorf("%q reads as %q, %v", content, types, err)
		}
		if err := (statefile.File{Path: path}).Save(written{Node: "n", Types: types}); err != nil {
			t.Fatal(err)
		}
		if again, err := readState(path, "n"); err != nil || !slices.Equal(types, again) {
			t.Errorf("saved %q, read %q, %v", types, again, err)
		}
	})
}
