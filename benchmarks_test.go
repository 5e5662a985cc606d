package kernosis_test

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"text/template"

	"golang.org/x/perf/benchfmt"
)

var update = flag.Bool("update", false, "write docs/benchmarks.md")

// report is a report of "make bench": the values of each benchmark's units, and what the report says of
// its machine.
type report struct {
	values map[string]map[string][]float64
	config map[string]string
}

// processors is the suffix of a benchmark's name for the number of CPUs.
var processors = regexp.MustCompile(`-\d+$`)

func readReport(t *testing.T, path string) report {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := report{map[string]map[string][]float64{}, map[string]string{}}
	reader := benchfmt.NewReader(f, path)
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue // a line of another kind, such as a skipped benchmark's
		}
		for _, c := range result.Config {
			r.config[c.Key] = string(c.Value)
		}
		name := processors.ReplaceAllString(string(result.Name), "")
		for _, v := range result.Values {
			value, unit := v.Value, v.Unit
			if v.OrigUnit != "" { // benchfmt turns ns into seconds
				value, unit = v.OrigValue, v.OrigUnit
			}
			if r.values[name] == nil {
				r.values[name] = map[string][]float64{}
			}
			r.values[name][unit] = append(r.values[name][unit], value)
		}
	}
	if err := reader.Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

// Each figure of docs/benchmarks.md is the median of that benchmark in docs/bench.txt, with two
// significant digits.
func TestBenchmarksOfDocs(t *testing.T) {
	r := readReport(t, "docs/bench.txt")
	value := func(name, unit string) float64 {
		values := slices.Sorted(slices.Values(r.values[name][unit]))
		if len(values) == 0 {
			t.Errorf("docs/bench.txt has no %s of %s", unit, name)
			return 0
		}
		return values[len(values)/2]
	}
	digits := func(n int, v float64) string {
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', n, 64), 64)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatFloat(rounded, 'f', -1, 64)
	}
	page, err := template.New("benchmarks.md.tmpl").Funcs(template.FuncMap{
		"value":  value,
		"fig":    func(name, unit string) string { return digits(2, value(name, unit)) },
		"fig3":   func(name, unit string) string { return digits(3, value(name, unit)) },
		"us":     func(v float64) string { return digits(2, v/1e3) },
		"ms":     func(v float64) string { return digits(2, v/1e6) },
		"config": func(key string) string { return r.config[key] },
		"commit": func() string { return r.config["commit"][:8] },
	}).ParseFiles("docs/benchmarks.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := page.Execute(&want, nil); err != nil {
		t.Fatal(err)
	}
	const path = "docs/benchmarks.md"
	if *update && !t.Failed() {
		if err := os.WriteFile(path, want.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Errorf("%s differs from its figures in docs/bench.txt; write it with: go test . -run %s -update", path, t.Name())
	}
}
