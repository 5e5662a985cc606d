package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/cmd/kernosis/config"
)

// A file is refused with its name, or it sets what YAML says that it sets, unless a variable or a
// flag does.
func FuzzLoad(f *testing.F) {
	for _, file := range []string{
		"state-dir: /file\nevery: 3s\nname: [file]\nport: 9\nlabels: {CamelCase: \"yes\"}\n", "---\nport: 9\n---\n", "port: 0o17\non: yes\nrate: 1_000.5\n", "on: maybe\nport: 70000\n",
		"Port: 9\n", "port: &a 9\nrate: *a\n", "<<: {port: 9}\n", "name: a,b\n", "every: 30\n", "state-dir: 5\nname: [1, null, 2.50]\n", "every:\nname:\n", "on: \"true\"\n",
	} {
		f.Add([]byte(file), uint16(7), uint8(0))
		f.Add([]byte(file), uint16(7), uint8(3))
	}
	path := filepath.Join(f.TempDir(), "kernosis.yaml")
	f.Fuzz(func(t *testing.T, file []byte, port uint16, from uint8) {
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		args, environ := []string{"--config", path}, []string{"PATH=/bin"}
		if from&1 != 0 {
			environ = append(environ, fmt.Sprintf("KERNOSIS_PORT=%d", port))
		}
		if from&2 != 0 {
			args = append(args, fmt.Sprintf("--port=%d", port+1))
		}
		var got settings
		_, _, err := config.Load(parsed(t, args), environ, &got)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%q: no file name in %v", file, err)
			}
			return
		}
		want := settings{Dir: "/var", Every: time.Second, Rate: 1, Part: part{Port: 1, On: true}}
		if err := yaml.NewDecoder(bytes.NewReader(file)).Decode(&want); err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%q: %v", file, err)
		}
		if want.Names == nil {
			want.Names = []string{"default"}
		}
		switch {
		case from&2 != 0:
			want.Part.Port = port + 1
		case from&1 != 0:
			want.Part.Port = port
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", file, diff)
		}
	})
}
