package conditions

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

const (
	// maxMessage is also the detector's bound, because many clients read a Node.
	maxMessage = 1024
	// MaxReason is the API's limit for the reason of an Event; conditions keep it too.
	MaxReason = 128
	// MaxTypes bounds what one agent adds to a Node.
	MaxTypes = 64

	// noReason replaces a reason that has no valid characters.
	noReason = "Unspecified"
)

// CheckType returns an error if an agent must not set a condition type, such as Kubernetes' own.
func CheckType(conditionType string) error {
	if event.KubernetesCondition(conditionType) {
		return fmt.Errorf("condition type %s is reserved by Kubernetes", conditionType)
	}
	if faults := validation.IsQualifiedName(conditionType); len(faults) > 0 {
		return fmt.Errorf("condition type %.80q: %s", conditionType, faults[0])
	}
	return nil
}

type checked struct {
	list             []problem.Condition
	refused, trimmed uint64
	err              error // describes each fault
}

// check returns a copy of the conditions that can be written. It leaves out conditions of types
// that the agent must not set. It changes texts that break the API's rules, because the status
// matters more than its wording.
func check(list []problem.Condition) checked {
	out := checked{list: make([]problem.Condition, 0, min(len(list), MaxTypes))}
	var errs []error
	seen := make(map[string]bool, len(list))
	for _, c := range list {
		err := CheckType(c.Type)
		switch {
		case err != nil:
		case c.Type == Contested:
			err = fmt.Errorf("condition type %s is set by the agent itself", c.Type)
		case seen[c.Type]:
			err = fmt.Errorf("condition type %s is listed twice", c.Type)
		case c.Status != problem.True && c.Status != problem.False && c.Status != problem.Unknown:
			err = fmt.Errorf("condition %s: status %.20q is not True, False or Unknown", c.Type, c.Status)
		case len(out.list) == MaxTypes:
			err = fmt.Errorf("condition %s: there are already %d types", c.Type, MaxTypes)
		}
		if err != nil {
			out.refused++
			errs = append(errs, err)
			continue
		}
		seen[c.Type] = true
		if reason := checkedReason(c.Reason); reason != c.Reason {
			out.trimmed++
			errs = append(errs, fmt.Errorf("condition %s: reason %.80q is not CamelCase; written as %s", c.Type, c.Reason, reason))
			c.Reason = reason
		}
		if message := plain(c.Message); message != c.Message {
			out.trimmed++
			errs = append(errs, fmt.Errorf("condition %s: message of %d bytes is cut to %d bytes and stripped of control characters", c.Type, len(c.Message), maxMessage))
			c.Message = message
		}
		out.list = append(out.list, c)
	}
	out.err = errors.Join(errs...)
	return out
}

// checkedReason returns a reason that follows the API's rule: a letter, then letters, digits and
// ",:_", the last not one of ",:".
func checkedReason(reason string) string {
	if len(reason) <= MaxReason && isReason(reason) {
		return reason
	}
	return cmp.Or(CamelCase(reason), noReason)
}

// CamelCase returns a text as a reason of at most MaxReason letters and digits. Any other character
// starts a new word. The result is empty if the text has no letters.
func CamelCase(text string) string {
	var b strings.Builder
	b.Grow(min(len(text), MaxReason))
	upper := true
	for _, r := range text {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (r < '0' || r > '9' || b.Len() == 0) {
			upper = true
			continue
		}
		if b.Len() == MaxReason {
			break
		}
		if upper {
			r = unicode.ToUpper(r)
		}
		upper = false
		b.WriteByte(byte(r))
	}
	return b.String()
}

// isReason reports whether a reason begins with an upper-case letter and has no character that
// the API forbids.
func isReason(reason string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return reason != "" && reason[0] >= 'A' && reason[0] <= 'Z' &&
		strings.Trim(reason, letters+"0123456789_,:") == "" && strings.TrimRight(reason, ",:") == reason
}

// plain returns a message that is valid UTF-8 of at most maxMessage bytes. Spaces replace control
// characters, such as those that would move a terminal's cursor.
func plain(message string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(message, "\uFFFD"))
	return display.Cut(clean, maxMessage)
}
