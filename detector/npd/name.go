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

// pascalCase matches valid condition types and reasons.
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
		r.errorf(key, "condition %s is reserved for Kubernetes, like all that end in Pressure", t)
	default:
		if !pascalCase.MatchString(t) {
			r.errorf(key, "%s is not PascalCase (letters and digits, at most 128)", shown(t))
		}
	}
}

// names holds the names that are taken. The names it assigns are unique, and the same at
// each start while the files are the same.
type names map[string]bool

// take returns a unique name made of parts, in lower case with dashes, not longer than most bytes.
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

// dashed converts a text to lower case letters, digits and single dashes.
func dashed(s string) string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(s), "-"), "-")
}

// stem returns a file's name without folder and extension.
func stem(file string) string {
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}
