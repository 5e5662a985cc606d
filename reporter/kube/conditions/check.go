package conditions

import (
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
	// maxReason is far more than a word needs.
	maxReason = 128
	// maxTypes bounds what one agent adds to a Node.
	maxTypes = 64

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

// checked is a list of conditions that the API accepts.
type checked struct {
	list             []problem.Condition
	refused, trimmed uint64
	err              error // describes each fault
}

// check returns a copy of the conditions that can be written. It leaves out conditions of types
// that the agent must not set. It changes texts that break the API's rules, because the status
// matters more than its wording.
func check(list []problem.Condition) checked {
	out := checked{list: make([]problem.Condition, 0, min(len(list), maxTypes))}
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
		case len(out.list) == maxTypes:
			err = fmt.Errorf("condition %s: there are already %d types", c.Type, maxTypes)
		}
		if err != nil {
			out.refused++
			errs = append(errs, err)
			continue
		}
		seen[c.Type] = true
		if reason := camelCase(c.Reason); reason != c.Reason {
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

// camelCase returns a reason that follows the API's rule: a letter, then letters, digits and
// ",:_", the last not one of ",:". A character that is not allowed starts a new word.
func camelCase(reason string) string {
	if valid := len(reason) <= maxReason && isReason(reason); valid {
		return reason
	}
	var b strings.Builder
	upper := true
	for _, r := range reason {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (r < '0' || r > '9' || b.Len() == 0) {
			upper = true
			continue
		}
		if b.Len() == maxReason {
			break
		}
		if upper {
			r = unicode.ToUpper(r)
		}
		upper = false
		b.WriteByte(byte(r))
	}
	if b.Len() == 0 {
		return noReason
	}
	return b.String()
}

// isReason reports whether a reason begins with an upper-case letter and has no character that
// the API forbids.
func isReason(reason string) bool {
	if reason == "" || reason[0] < 'A' || reason[0] > 'Z' {
		return false
	}
	for i := range len(reason) {
		c := reason[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case (c == ',' || c == ':') && i < len(reason)-1:
		default:
			return false
		}
	}
	return true
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
