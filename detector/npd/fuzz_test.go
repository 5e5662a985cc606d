package npd_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/npd"
)

// FuzzParse: any file gives mistakes with a position, or settings within their bounds
// and rules that the detector accepts.
func FuzzParse(f *testing.F) {
	for _, s := range shipped() {
		data, err := os.ReadFile(filepath.Join("testdata/config", s.name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{
		`{"plugin":"kmsg","conditions":[{"type":"A","reason":"B","message":"\u0000\ud800 ${x}"}],"rules":[{"type":"permanent","condition":"A","reason":"C","pattern":"(?P<in>a)\n\\Q","clearPattern":"^b$","patternGeneratedMessageSuffix":"${ $${ }"},]}`,
		`{"plugin":"journald","pluginConfig":{"source":"x\ny"},"rules":[{"type":"temporary","reason":"R","pattern":"\\pL{1000}"}]}`,
		`{"plugin":"filelog","logPath":"/a: b","skipList":["#"],"pluginConfig":{"timestamp":".","message":".","timestampFormat":"2006"},"kernelOnly":true}`,
		`{"plugin":"custom","rules":[{"type":"temporary","reason":"R","path":"/x","args":["\"","\\"],"timeout":"1e9h"}]}`,
		`{"cpu":{"metricsConfigs":{"":{"displayName":"x"}}},"invokeInterval":"1000000h"}`,
		`[{"moduleName":"x"}]`, "{\"a\":\xff}", `[[[[`, "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		file, err := npd.Parse("fuzz.json", data, npd.Options{AnyProgram: true})
		if !bytes.Equal(before, data) {
			t.Fatal("Parse changed its input")
		}
		if err != nil {
			if file != nil {
				t.Fatal("a file with mistakes")
			}
			places(t, err)
			if s := err.Error(); strings.ContainsAny(s, "\x1b\x7f\r\u202e") {
				t.Errorf("error %q", s)
			}
			return
		}
		set, err := npd.Convert([]*npd.File{file, file}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if rules, err := fs.ReadDir(set.Layer, "."); err != nil || len(rules) == 0 {
			return // save time: a CEL environment takes 20 ms
		}
		if _, err := detector.Load(set.Layer); err != nil {
			t.Fatalf("the detector doesn't take what comes of it: %v", err)
		}
	})
}

func places(t *testing.T, err error) {
	var list detector.Errors
	if !errors.As(err, &list) || len(list) == 0 || len(list) > 101 {
		t.Fatalf("%T of %d: %v", err, len(list), err)
	}
	for _, e := range list {
		if e.File != "fuzz.json" || e.Msg == "" || len(e.Error()) > 20_000 {
			t.Fatalf("%q", e.Error())
		}
	}
}
