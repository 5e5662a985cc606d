package output

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestFormat(t *testing.T) {
	value := map[string]string{"name": "<a>"}
	for args, want := range map[string]string{
		"":                "people",
		"-o text":         "people", // its previous name
		"-o wide":         "people",
		"--output json":   "{\n  \"name\": \"<a>\"\n}\n",
		"-o yaml":         "name: <a>\n",
		"-o svg":          "people",
		"-o xml":          `invalid argument "xml" for "-o, --output" flag: want table, wide, json, yaml or svg`,
		"--output=ndjson": `invalid argument "ndjson" for "-o, --output" flag: want table, wide, json, yaml or svg`,
	} {
		cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
		f := Add(cmd, "svg")
		var out strings.Builder
		cmd.RunE = func(*cobra.Command, []string) error {
			return f.Write(&out, value, func() error { out.WriteString("people"); return nil })
		}
		cmd.SetArgs(strings.Fields(args))
		err := cmd.Execute()
		got := out.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q:\n%s\nwant\n%s", args, got, want)
		}
	}
}

// "text" is another name for table only.
func TestText(t *testing.T) {
	f := AddNames(&cobra.Command{}, JSON, YAML)
	if err := f.Set(Text); err == nil || err.Error() != "want json or yaml" {
		t.Error(err)
	}
	if f = AddNames(&cobra.Command{}, Text, "tap"); f.Set(Text) != nil || !f.ForPeople() || f.Set("tap") != nil || f.ForPeople() {
		t.Error(f)
	}
}

// Colours and wide characters do not shift columns.
func TestRows(t *testing.T) {
	red := Colours{on: true}
	var r Rows
	r.Add("STATUS", "TYPE", "MESSAGE")
	r.Add(red.Status("True"), "日本", "a long message that needs no room")
	r.Add(red.Status("False"), "b", "")
	r.Add("a single cell is no reason for a wide column")
	want := "STATUS  TYPE  MESSAGE\n" +
		"\x1b[31mTrue\x1b[0m    日本  a long message that needs no room\n" +
		"False   b\n" +
		"a single cell is no reason for a wide column\n"
	if got := r.String(); got != want || r.Len() != 4 {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestColours(t *testing.T) {
	if c := ColoursOf(&strings.Builder{}); c.Bad("x") != "x" || c.Status("Unknown") != "Unknown" {
		t.Error("what is no terminal has colours")
	}
	if got := (Colours{on: true}).Status("Unknown"); got != "\x1b[33mUnknown\x1b[0m" {
		t.Errorf("%q", got)
	}
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	defer tty.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !ColoursOf(tty).on {
		t.Error("a terminal has no colours")
	}
	t.Setenv("NO_COLOR", "1")
	if ColoursOf(tty).on {
		t.Error("NO_COLOR is not honoured")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if ColoursOf(tty).on {
		t.Error("a dumb terminal has colours")
	}
}
