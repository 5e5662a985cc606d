package npd

import (
	"fmt"
	"hash/fnv"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/internal/form"
)

// pascalCase is what a condition type and a reason must look like.
var pascalCase = regexp.MustCompile(form.PascalPattern)

func (r *reader) checkReason(key, reason string) {
	if reason != "" && !pascalCase.MatchString(reason) {
		r.errorf(key, "%s is not PascalCase (letters and digits, at most 128)", shown(reason))
	}
}

func (r *reader) checkConditionType(key, t string) {
	switch {
	case t == "":
	case event.KubernetesCondition(t):
		r.errorf(key, "condition %s belongs to Kubernetes itself, as all that end in Pressure", t)
	default:
		if !pascalCase.MatchString(t) {
			r.errorf(key, "%s is not PascalCase (letters and digits, at most 128)", shown(t))
		}
	}
}

// names gives out names that are unique and the same at each start as long as
// the files are the same.
type names map[string]bool

// take returns a name of parts, in lower case with dashes, of no more than most
// bytes.
func (t names) take(most int, parts ...string) string {
	base := dashed(strings.Join(parts, "-"))
	if len(base) > most {
		h := fnv.New32a()
		_, _ = h.Write([]byte(base)) // never fails
		base = strings.Trim(base[:most-9], "-") + fmt.Sprintf("-%08x", h.Sum32())
	}
	name := base
	for n := 2; t[name]; n++ {
		suffix := "-" + strconv.Itoa(n)
		name = base[:min(len(base), most-len(suffix))] + suffix
	}
	t[name] = true
	return name
}

// dashed makes lower case letters, digits and single dashes of a text.
func dashed(s string) string {
	var b strings.Builder
	gap := false
	for _, c := range []byte(strings.ToLower(s)) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			gap = false
			b.WriteByte(c)
			continue
		}
		gap = true
	}
	return b.String()
}

// stem is a file's name without folder and extension.
func stem(file string) string {
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}
