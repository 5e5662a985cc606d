package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
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

// A variable sets its value as Go reads it, or the error names the variable.
func FuzzVariables(f *testing.F) {
	f.Add("2s", "0x1F90", "t", "1e3", "a,b")
	f.Add("soon", "70000", "maybe", "fast", "\"a,b\",c")
	f.Add("1", "1_0", "", "NaN", ",")
	f.Add("", "tcp://10.0.0.1:443", "TRUE", "0x1p-2", " ")
	f.Fuzz(func(t *testing.T, every, port, on, rate, dir string) {
		environ := []string{"KERNOSIS_EVERY=" + every, "KERNOSIS_PORT=" + port, "KERNOSIS_ON=" + on, "KERNOSIS_RATE=" + rate, "KERNOSIS_STATE_DIR=" + dir}
		var got settings
		_, _, err := config.Load(parsed(t, nil), environ, &got)
		want := settings{Dir: dir, Every: time.Second, Rate: 1, Part: part{Port: 1, On: true}, Names: []string{"default"}}
		if dir == "" {
			want.Dir = "/var"
		}
		var errs [4]error
		if every != "" {
			want.Every, errs[0] = time.ParseDuration(every)
		}
		if port != "" && !strings.HasPrefix(port, "tcp://") && !strings.HasPrefix(port, "udp://") && !strings.HasPrefix(port, "sctp://") {
			var n uint64
			n, errs[1] = strconv.ParseUint(port, 0, 16)
			want.Part.Port = uint16(n)
		}
		if on != "" {
			want.Part.On, errs[2] = strconv.ParseBool(on)
		}
		if rate != "" {
			want.Rate, errs[3] = strconv.ParseFloat(rate, 64)
		}
		if wrong := errors.Join(errs[:]...); wrong != nil || err != nil {
			if wrong == nil || err == nil || !strings.HasPrefix(err.Error(), "KERNOSIS_") {
				t.Errorf("%q: %v, want %v", environ, err, wrong)
			}
			return
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{}), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", environ, diff)
		}
	})
}
