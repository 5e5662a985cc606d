package apitest

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"golang.org/x/tools/txtar"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

//go:embed manifests.txtar
var manifests []byte

// Case is a manifest and the expected result of validating it.
type Case struct {
	Name string // KIND/what is tested
	Kind string
	Text string // of the manifest
	// Field is the field that is refused; empty: the manifest is accepted.
	Field string
	// Message is part of the expected error, if the error comes from the schema.
	Message string
}

// Accepted reports whether the manifest must be accepted.
func (c *Case) Accepted() bool { return c.Field == "" }

// Cases returns all cases in manifests.txtar.
func Cases(tb testing.TB) []Case {
	tb.Helper()
	unfit := regexp.MustCompile(`[^a-z0-9]+`)
	var cases []Case
	for _, f := range txtar.Parse(manifests).Files {
		kind, _, ok := strings.Cut(f.Name, "/")
		first, rest, _ := strings.Cut(string(f.Data), "\n")
		want, marked := strings.CutPrefix(first, "# ")
		if !ok || !marked {
			tb.Fatalf("%s: want KIND/NAME and a first line that names the field", f.Name)
		}
		c := Case{Name: f.Name, Kind: kind}
		if want != "accepted" {
			c.Field, c.Message, _ = strings.Cut(want, ": ")
		}
		var spec strings.Builder
		t, err := template.New(f.Name).Funcs(template.FuncMap{"times": times, "each": each}).Parse(rest)
		if err == nil {
			err = t.Execute(&spec, nil)
		}
		if err != nil {
			tb.Fatal(err)
		}
		c.Text = fmt.Sprintf("apiVersion: %s\nkind: %s\n", v1alpha1.GroupVersion(), kind)
		if !strings.Contains(rest, "metadata:") {
			c.Text += "metadata: {name: " + strings.Trim(unfit.ReplaceAllString(strings.ToLower(f.Name), "-"), "-") + "}\n"
		}
		if s := spec.String(); strings.TrimSpace(s) != "{}" {
			c.Text += s
		}
		cases = append(cases, c)
	}
	return cases
}

func times(n int, text string) string { return strings.Repeat(text, n) }

// each formats the numbers from 1 to n and joins the texts with commas.
func each(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i+1)
	}
	return strings.Join(items, ", ")
}
