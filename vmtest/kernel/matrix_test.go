package kernel

import (
	"bytes"
	"strings"
	"testing"
)

func TestParseMatrix(t *testing.T) {
	kernels, err := parseMatrix("kernels.txt", strings.NewReader(`
# name  suite  package
5.10		bullseye      linux-image-cloud-amd64  # the oldest
newest-generic sid linux-image-amd64
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Kernel{{"5.10", "bullseye", "linux-image-cloud-amd64"}, {"newest-generic", "sid", "linux-image-amd64"}}
	if len(kernels) != 2 || kernels[0] != want[0] || kernels[1] != want[1] {
		t.Errorf("kernels are %+v, want %+v", kernels, want)
	}
}

func TestParseMatrixErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                         "k.txt: has no kernel",
		"# none":                                   "k.txt: has no kernel",
		"5.10 bullseye":                            "k.txt:1: has 2 fields, not the 3 of name, suite and package",
		"5.10 bullseye linux-image-a b":            "k.txt:1: has 4 fields, not the 3 of name, suite and package",
		"\n../etc sid linux-image-a":               `k.txt:2: name: "../etc" is not LABEL or LABEL-VARIANT of lower-case letters, digits and dots`,
		".. sid linux-image-a":                     `k.txt:1: name: ".." is not LABEL or LABEL-VARIANT of lower-case letters, digits and dots`,
		"a-b-c sid linux-image-a":                  `k.txt:1: name: "a-b-c" is not LABEL or LABEL-VARIANT of lower-case letters, digits and dots`,
		"_a sid linux-image-a":                     `k.txt:1: name: "_a" is not LABEL or LABEL-VARIANT of lower-case letters, digits and dots`,
		"a [x] linux-image-a":                      `k.txt:1: suite: "[x]" is not the name of one`,
		"a si/d linux-image-a":                     `k.txt:1: suite: "si/d" is not the name of one`,
		"a sid linux-source":                       `k.txt:1: package: "linux-source" is not linux-image-…`,
		"a sid linux-image-a=1":                    `k.txt:1: package: "linux-image-a=1" is not linux-image-…`,
		"a sid linux-image-a\n\na b linux-image-b": "k.txt:3: name: a is on line 1 already",
		"a\nb":                             "k.txt:1: has 1 fields, not the 3 of name, suite and package\nk.txt:2: has 1 fields, not the 3 of name, suite and package",
		"#\n" + strings.Repeat("x", 1<<17): "k.txt:2: bufio.Scanner: token too long",
	} {
		kernels, err := parseMatrix("k.txt", strings.NewReader(text))
		if err == nil || err.Error() != want || kernels != nil {
			t.Errorf("%.40q: %v, error %v, want %s", text, kernels, err, want)
		}
	}
}

func TestMatrix(t *testing.T) {
	kernels, err := ReadMatrix("../kernels.txt")
	if err != nil {
		t.Fatal(err)
	}
	if oldest, err := Find(kernels, "5.10"); err != nil || oldest.Suite != "bullseye" {
		t.Errorf("oldest is %+v, %v", oldest, err)
	}
	if _, err := Find(kernels, "newest"); err != nil {
		t.Error(err)
	}
	if _, err := Find(kernels, "4.19"); err == nil || !strings.Contains(err.Error(), `no kernel "4.19": there are 5.10, 6.1, `) {
		t.Errorf("error is %v", err)
	}
	for _, k := range kernels {
		if k.Suite == "sid" || k.Suite == "experimental" {
			if series.MatchString(label(k.Name)) {
				t.Errorf("kernel %s: suite %s moves on, its kernel's name must not be a number", k.Name, k.Suite)
			}
		}
	}
	if _, err := ReadMatrix("none.txt"); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		label, release string
		want           bool
	}{
		{"6.1", "6.1.0-50-cloud-amd64", true},
		{"6.1", "6.12.107+deb13-cloud-amd64", false},
		{"6.12", "6.1.0-50-cloud-amd64", false},
		{"7.3", "7.3-cloud-amd64", true},
		{"7.2.13", "7.2.13+deb14-amd64", true},
		{"7.2.1", "7.2.13+deb14-amd64", false},
		{"7.2", "7.2", true},
		{"newest", "7.2.13+deb14-amd64", true},
	} {
		if got := matches(test.label, test.release); got != test.want {
			t.Errorf("matches(%s, %s) = %t", test.label, test.release, got)
		}
	}
}

func FuzzParseMatrix(f *testing.F) {
	f.Add([]byte("# c\n5.10 bullseye linux-image-cloud-amd64\nrc experimental linux-image-amd64 # x\n"))
	f.Add([]byte("a\n../b c d\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		kernels, err := parseMatrix("k", bytes.NewReader(text))
		if (err == nil) != (len(kernels) > 0) {
			t.Fatalf("%d kernels, error %v", len(kernels), err)
		}
		// Accepted rows parse to the same rows again, and can be found by name.
		var again strings.Builder
		for _, k := range kernels {
			if strings.ContainsAny(k.Name+k.Suite+k.Package, "/ \t\n[]\"'$=") || strings.HasPrefix(k.Name, unfinished) || strings.HasPrefix(k.Name, ".") {
				t.Fatalf("%+v", k)
			}
			if found, err := Find(kernels, k.Name); err != nil || found != k {
				t.Fatalf("found %+v, %v, want %+v", found, err, k)
			}
			again.WriteString(k.Name + " " + k.Suite + " " + k.Package + "\n")
		}
		if err != nil {
			return
		}
		if second, err := parseMatrix("k", strings.NewReader(again.String())); err != nil || len(second) != len(kernels) {
			t.Fatalf("%v, %v", second, err)
		}
	})
}
