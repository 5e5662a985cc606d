package inject

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// No step of a record is skipped, but for a last one that a crash truncated: what is skipped is
// never undone.
func FuzzReadRecord(f *testing.F) {
	f.Add([]byte("{\"kind\":\"guard\",\"pid\":7}\n{\"kind\":\"dir\",\"path\":\"/run/kernosis/inject/7-oom\"}\n{\"kind\":\"cgr"), "/a b", uint16(10))
	f.Add([]byte("{\"kind\":\"dir\",\"path\":\"/a\"}\n\x00\x00\n{\"kind\":\"mount\",\"path\":\"/a\"}\n"), "\n", uint16(40))
	f.Add([]byte("{}\nnull\n"), "", uint16(0))
	path := filepath.Join(f.TempDir(), "7-oom.jsonl")
	read := func(t *testing.T, content []byte) ([]step, error) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return readRecord(path)
	}
	f.Fuzz(func(t *testing.T, content []byte, dir string, cut uint16) {
		steps, err := read(t, content)
		if err == nil && len(steps) < bytes.Count(content, []byte("\n")) || slices.ContainsFunc(steps, func(s step) bool { return s.Kind == "" }) {
			t.Errorf("%q: %+v, %v", content, steps, err)
		}
		written, all := []step{{Kind: stepGuard, PID: 7}, {Kind: stepDir, Path: string(bytes.ToValidUTF8([]byte(dir), nil))}, {Kind: stepLoop, Path: "/x"}}, bytes.Buffer{}
		for _, s := range written {
			if err := json.NewEncoder(&all).Encode(s); err != nil {
				t.Fatal(err)
			}
		}
		begin := all.Bytes()[:int(cut)%(all.Len()+1)]
		n := bytes.Count(begin, []byte("\n"))
		if steps, err := read(t, begin); err != nil || !slices.Equal(steps[:n], written[:n]) || len(steps) > n && steps[n] != written[n] {
			t.Errorf("%q: %+v, %v", begin, steps, err)
		}
	})
}
