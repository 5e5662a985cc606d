package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

func archived(t *testing.T, fill func(a *archive)) map[string]string {
	t.Helper()
	var b bytes.Buffer
	a := newArchive(&b, "kernosis-n7", "An archive.", time.Now())
	fill(a)
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	return readArchive(t, b.Bytes())
}

func TestArchive(t *testing.T) {
	got := archived(t, func(a *archive) {
		a.lack("metrics.txt", errors.New("refused\nAuthorization: Bearer hunter2"))
		a.add("agent.log", "log", "password: hunter2\n\x1b[2Jnext\xff\n")
		a.add("status.json", "state", "{\"token\":\"hunter2\",\"n\":9007199254740993,\n\"args\":[\"mysql\",\"--password\",\"hunter2\"],\"text\":\"a --token=hunter2\"}")
		a.add("one.jsonl", "one line", "{\"a\":1}\n")
		a.add("journal.jsonl", "journal", "half\"}\n{\"a\":\"Cookie: hunter2\"}\n\n{\"b\":[1,{\"secret\":\"hunter2\"}],\"h\":{\"name\":\"X-Token\",\"value\":\"hunter2\"},\"auth\":[\"hunter2\"]}\n{\"c\":")
		a.add("bad.json", "none", "x")
	})
	for name, want := range map[string]string{
		"agent.log":     "password: [redacted]\n\\x1b[2Jnext\ufffd\n",
		"status.json":   "{\n  \"args\": [\n    \"mysql\",\n    \"--password\",\n    \"[redacted]\"\n  ],\n  \"n\": 9007199254740993,\n  \"text\": \"a --token=[redacted]\",\n  \"token\": \"[redacted]\"\n}\n",
		"one.jsonl":     "{\"a\":1}\n",
		"journal.jsonl": "{\"a\":\"Cookie: [redacted]\"}\n{\"auth\":\"[redacted]\",\"b\":[1,{\"secret\":\"[redacted]\"}],\"h\":{\"name\":\"X-Token\",\"value\":\"[redacted]\"}}\n",
	} {
		if got[name] != want {
			t.Errorf("%s:\n%q\nwant\n%q", name, got[name], want)
		}
	}
	manifest := got[manifestName]
	for _, want := range []string{"An archive.\n", "FILE ", "agent.log      ", "; without 2 lines that could not be read\n", "\nNot collected:\nmetrics.txt  refused; Authorization: [redacted]\nbad.json     not JSON\n"} {
		if !strings.Contains(manifest, want) {
			t.Errorf("%q is missing in\n%s", want, manifest)
		}
	}
}

// A text that is too long keeps its end, and a full archive says so.
func TestArchiveIsBounded(t *testing.T) {
	line := strings.Repeat("a line of a log, ", 10) + "\n"
	long := strings.Repeat(line, maxBundled/len(line)+10) + "the last\n"
	got := archived(t, func(a *archive) {
		for range maxBundle/maxBundled + 2 {
			a.add("log", "log", long)
		}
	})
	if text := got["log"]; len(text) > maxBundled || !strings.HasSuffix(text, "\nthe last\n") || !strings.HasPrefix(text, line) {
		t.Errorf("%d bytes: %.20q", len(text), text)
	}
	if manifest := got[manifestName]; !strings.Contains(manifest, onlyEnd) || !strings.Contains(manifest, "the archive is full") {
		t.Error(manifest)
	}
}

func TestRedactYAML(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte("services:\n- {name: web, command: [/bin/check, --password, hunter2, -v]}\npassword: hunter2\nheaders: [{name: X-Api-Key, value: hunter2}, {name: Host, value: web}]\nauth: {user: web, key: hunter2}\nurl: https://a:hunter2@b/ # flag\nkeep: 3\n"), &doc); err != nil {
		t.Fatal(err)
	}
	if err := redactYAML(doc.Content[0]); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(&doc)
	if text := string(out); err != nil || strings.Contains(text, "hunter2") || strings.Count(text, "[redacted]") != 5 || !strings.Contains(text, "value: web") || !strings.Contains(text, "keep: 3\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

// No value is lost: it is in the archive, or counted as skipped. Without secrets it stays as it is, a
// planted secret does not.
func FuzzRedactJSON(f *testing.F) {
	f.Add([]byte(`{"token":"x","n":9007199254740993,"args":["mysql","--password","x"],"h":{"name":"X-Token","value":1}}`), "hunter2 and more")
	f.Add([]byte("half\"}\n{\"a\":1}\n\n{\"b\":[1,null]}\n{\"c\":"), "--x")
	f.Add([]byte("{\"a\":1}}\n{\"b\":2}\n"), `"'`)
	f.Add([]byte("[] []\n"), "")
	f.Fuzz(func(t *testing.T, text []byte, secret string) {
		clean, skipped, err := redactJSON(text)
		if json.Valid(text) {
			var was, is any
			if errors.Join(err, decodeOne(text, &was), decodeOne(clean, &is)) != nil || !bytes.Contains(clean, []byte("[redacted]")) && !reflect.DeepEqual(was, is) {
				t.Errorf("%q becomes %q, %v", text, clean, err)
			}
		} else if lines := len(slices.DeleteFunc(bytes.Split(text, []byte("\n")), func(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 })); lines != skipped+bytes.Count(clean, []byte("\n")) {
			t.Errorf("%q becomes %q, %d of %d lines skipped", text, clean, skipped, lines)
		}
		if err != nil {
			return
		}
		if again, _, err := redactJSON(clean); len(clean) > 0 && (err != nil || !bytes.Equal(again, clean)) {
			t.Errorf("%q becomes %q, and %q, %v", text, clean, again, err)
		}
		secret = "Qz7" + secret + "xK9"
		planted, err := json.Marshal([]any{
			json.RawMessage(bytes.TrimSpace(bytes.SplitAfter(clean, []byte("\n"))[0])), map[string]string{"password": secret}, []string{"mysql", "--password", secret},
			map[string]string{"name": "DB_TOKEN", "value": secret}, map[string]any{"auth": []any{1, map[string]string{"a": secret}}},
		})
		if err != nil {
			return // the first line of a value in several lines
		}
		if clean, _, err = redactJSON(planted); err != nil || bytes.Contains(clean, []byte("Qz7")) || bytes.Contains(clean, []byte("xK9")) {
			t.Errorf("%s becomes %s, %v", planted, clean, err)
		}
	})
}
