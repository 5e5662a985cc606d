package conditions

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The file decides which conditions of an earlier run are removed. Fields that a newer version
// has added must not keep them for ever, and a file of another version is not lost.
func TestStateOfANewerVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conditions.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"node":"n","types":["OldType","Ready"],"later":{"is":[1]}}`)
	if types, err := readState(path, "n"); err != nil || !slices.Equal(types, []string{"OldType"}) {
		t.Error(types, err)
	}
	newer := `{"version":2,"node":"n","types":{"OldType":{}}}`
	write(newer)
	if types, err := readState(path, "n"); err == nil || types != nil {
		t.Error(types, err)
	}
	if kept, err := os.ReadFile(path + ".unread"); err != nil || string(kept) != newer {
		t.Errorf("%s, %v", kept, err)
	}
}
