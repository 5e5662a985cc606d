package operation

import (
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// Form describes the values that a parameter accepts: "duration, at most 1m; default 5s".
func (p *Parameter) Form() string {
	text := string(p.Kind)
	switch p.Kind {
	case Enum:
		text = strings.Join(p.Values, ", ")
	case Integer:
		text += bounds(p, decimal)
	case Duration:
		text += bounds(p, func(n int64) string { return display.Exact(time.Duration(n)) })
	case Bytes:
		text += bounds(p, byteText)
	case String:
		text += bounds(p, func(n int64) string { return decimal(n) + " bytes" })
	}
	switch {
	case p.Required:
		text += "; required"
	case p.Default != "":
		text += "; default " + p.Default
	}
	return text
}

func bounds(p *Parameter, text func(int64) string) string {
	switch {
	case p.Min > 0 && p.Max > 0:
		return " from " + text(p.Min) + " to " + text(p.Max)
	case p.Max > 0:
		return ", at most " + text(p.Max)
	case p.Min > 0:
		return ", at least " + text(p.Min)
	}
	return ""
}
