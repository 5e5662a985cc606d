package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// files reads an archive.
func files(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o600 {
			t.Fatal(h, err)
		}
		all[strings.TrimPrefix(h.Name, "kernosis-n7/")] = string(text)
	}
}

func archive(t *testing.T, fill func(a *Archive)) map[string]string {
	t.Helper()
	var b bytes.Buffer
	a := New(&b, "kernosis-n7", "An archive.", time.Now())
	fill(a)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return files(t, b.Bytes())
}

func TestArchive(t *testing.T) {
	got := archive(t, func(a *Archive) {
		a.Lack("metrics.txt", errors.New("refused\nAuthorization: Bearer hunter2"))
		a.Add("agent.log", "log", "password: hunter2\n\x1b[2Jnext\xff\n")
		a.Add("status.json", "state", `{"token":"hunter2","n":9007199254740993,"args":["mysql","--password","hunter2"],"text":"a --token=hunter2"}`)
		a.Add("journal.jsonl", "journal", "half\"}\n{\"a\":\"Cookie: hunter2\"}\n\n{\"b\":[1,{\"secret\":\"hunter2\"}],\"h\":{\"name\":\"X-Token\",\"value\":\"hunter2\"},\"auth\":[\"hunter2\"]}\n{\"c\":")
		a.Add("bad.json", "none", "x")
	})
	for name, want := range map[string]string{
		"agent.log":     "password: [redacted]\n\\x1b[2Jnext\ufffd\n",
		"status.json":   "{\n  \"args\": [\n    \"mysql\",\n    \"--password\",\n    \"[redacted]\"\n  ],\n  \"n\": 9007199254740993,\n  \"text\": \"a --token=[redacted]\",\n  \"token\": \"[redacted]\"\n}\n",
		"journal.jsonl": "{\"a\":\"Cookie: [redacted]\"}\n{\"auth\":\"[redacted]\",\"b\":[1,{\"secret\":\"[redacted]\"}],\"h\":{\"name\":\"X-Token\",\"value\":\"[redacted]\"}}\n",
	} {
		if got[name] != want {
			t.Errorf("%s:\n%q\nwant\n%q", name, got[name], want)
		}
	}
	manifest := got[ManifestName]
	for _, want := range []string{"An archive.\n", "FILE ", "agent.log      ", "; without 2 lines that could not be read\n", "\nNot collected:\nmetrics.txt  refused; Authorization: [redacted]\nbad.json     not JSON\n"} {
		if !strings.Contains(manifest, want) {
			t.Errorf("%q is missing in\n%s", want, manifest)
		}
	}
}

// A text that is too long keeps its end, and a full archive says so.
func TestBounds(t *testing.T) {
	line := strings.Repeat("a line of a log, ", 10) + "\n"
	long := strings.Repeat(line, MaxFile/len(line)+10) + "the last\n"
	got := archive(t, func(a *Archive) {
		for range maxTotal/MaxFile + 2 {
			a.Add("log", "log", long)
		}
	})
	if text := got["log"]; len(text) > MaxFile || !strings.HasSuffix(text, "\nthe last\n") || !strings.HasPrefix(text, line) {
		t.Errorf("%d bytes: %.20q", len(text), text)
	}
	if manifest := got[ManifestName]; !strings.Contains(manifest, cut) || !strings.Contains(manifest, "the archive is full") {
		t.Error(manifest)
	}
}

func TestRedactYAML(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte("services:\n- {name: web, command: [/bin/check, --password, hunter2, -v]}\npassword: hunter2\nheaders: [{name: X-Api-Key, value: hunter2}, {name: Host, value: web}]\nauth: {user: web, key: hunter2}\nurl: https://a:hunter2@b/ # flag\nkeep: 3\n"), &doc); err != nil {
		t.Fatal(err)
	}
	if err := RedactYAML(doc.Content[0]); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(&doc)
	if text := string(out); err != nil || strings.Contains(text, "hunter2") || strings.Count(text, "[redacted]") != 5 || !strings.Contains(text, "value: web") || !strings.Contains(text, "keep: 3\n") {
		t.Errorf("%v\n%s", err, text)
	}
}
