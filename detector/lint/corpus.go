package lint

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/document"
)

//go:embed corpus.yaml
var corpusYAML []byte

// Corpus holds kernel log lines by the fault they report.
type Corpus struct {
	Faults  []Fault
	Renamed []Rename
	Healthy []string          // lines that report no fault
	Values  map[string]string // default values of {comm}, {dev} …, used if a pattern has no word for it
}

// Fault is a fault with the forms of the messages that report it.
type Fault struct {
	Name    string
	Reasons []string // usual reasons of rules for it
	Forms   []Form
}

// Form is one wording of a message, used by kernels From to To.
type Form struct {
	From, To Version // zero: from the first, to the latest
	Arch     string  // empty: any
	Seen     string  // kernel whose log it was taken from
	Lines    []string
}

// Rename records that a program was renamed.
type Rename struct{ Name, Now, Since string }

// Version is a kernel's major and minor number.
type Version struct{ Major, Minor int }

// ParseVersion reads "6.12".
func ParseVersion(s string) (Version, error) {
	major, minor, ok := strings.Cut(s, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if !ok || err1 != nil || err2 != nil || a < 1 || a > 99 || b < 0 || b > 999 {
		return Version{}, fmt.Errorf("kernel %q: want major.minor, such as 6.12", s)
	}
	return Version{a, b}, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

func (v Version) before(o Version) bool {
	return v.Major < o.Major || v.Major == o.Major && v.Minor < o.Minor
}

// Kernels is a range of versions, both ends included.
type Kernels struct{ From, To Version }

// DefaultKernels returns the kernels that Kernosis runs on.
func DefaultKernels() Kernels { return Kernels{Version{5, 10}, Version{7, 3}} }

// ParseKernels reads "5.10-7.3" or one version.
func ParseKernels(s string) (Kernels, error) {
	from, to, ok := strings.Cut(s, "-")
	a, err := ParseVersion(from)
	if err != nil {
		return Kernels{}, err
	}
	if !ok {
		return Kernels{a, a}, nil
	}
	b, err := ParseVersion(to)
	if err != nil {
		return Kernels{}, err
	}
	if b.before(a) {
		return Kernels{}, fmt.Errorf("kernels %q: %v comes after %v", s, a, b)
	}
	return Kernels{a, b}, nil
}

func (k Kernels) String() string {
	if k.From == k.To {
		return k.From.String()
	}
	return k.From.String() + " to " + k.To.String()
}

// Of reports whether any of the kernels logs the form.
func (f *Form) Of(k Kernels) bool {
	return !k.To.before(f.From) && (f.To == Version{} || !f.To.before(k.From))
}

// kernels returns the form's kernel range for display.
func (f *Form) kernels() string {
	arch := ""
	if f.Arch != "" {
		arch = " on " + f.Arch
	}
	switch {
	case f.From == Version{} && f.To == Version{}:
		return "every kernel" + arch
	case f.To == Version{}:
		return f.From.String() + " and later" + arch
	case f.From == Version{}:
		return "up to " + f.To.String() + arch
	}
	return f.From.String() + " to " + f.To.String() + arch
}

// Shipped returns the corpus that is part of the binary.
func Shipped() (*Corpus, error) { return ParseCorpus("corpus.yaml", corpusYAML) }

// ParseCorpus reads a corpus. The error joins all mistakes.
func ParseCorpus(name string, data []byte) (*Corpus, error) {
	f, root := document.Read(name, data)
	c := &Corpus{Values: make(map[string]string)}
	if root != nil {
		top := f.Object(root, "", "values", "renamed", "faults", "healthy")
		for _, p := range top.Map("values") {
			c.Values[p.Key.Value] = f.String(p.Value, "values."+p.Key.Value)
		}
		for _, m := range top.Objects("renamed", "name", "now", "since") {
			m.Need("name", "now", "since")
			c.Renamed = append(c.Renamed, Rename{m.Text("name"), m.Text("now"), m.Text("since")})
		}
		c.Healthy = top.Texts("healthy")
		for _, m := range top.Objects("faults", "name", "reasons", "forms") {
			c.Faults = append(c.Faults, parseFault(m))
		}
	}
	f.Errors.Sort()
	if err := f.Errors.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func parseFault(m *document.Mapping) Fault {
	m.Need("name", "forms")
	out := Fault{Name: m.Text("name"), Reasons: m.Texts("reasons")}
	if out.Name == "" && m.Keys["name"] != nil {
		m.Errorf("name", "is empty")
	}
	if forms := m.Keys["forms"]; forms != nil && len(forms.Content) == 0 {
		m.Errorf("forms", "is empty")
	}
	for _, f := range m.Objects("forms", "from", "to", "arch", "seen", "lines") {
		f.Need("lines")
		form := Form{Arch: f.Text("arch"), Seen: f.Text("seen"), Lines: f.Texts("lines")}
		if f.Keys["lines"] != nil && (len(form.Lines) == 0 || slices.Contains(form.Lines, "")) {
			f.Errorf("lines", "is empty")
		}
		for key, into := range map[string]*Version{"from": &form.From, "to": &form.To} {
			if f.Keys[key] == nil {
				continue
			}
			v, err := ParseVersion(f.Text(key))
			if err != nil {
				f.Errorf(key, "%v", err)
			}
			*into = v
		}
		if form.To != (Version{}) && form.To.before(form.From) {
			f.Errorf("to", "%v comes before %v", form.To, form.From)
		}
		out.Forms = append(out.Forms, form)
	}
	return out
}
