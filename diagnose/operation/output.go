package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kernosis/kernosis/collector/event"
)

// What one operation may hand on, so that the results of a whole graph fit into the
// status of a Diagnosis.
const (
	MaxResult  = 2 << 10 // bytes of a value
	MaxResults = 8 << 10 // bytes of all keys and values
	maxKeys    = 64
	maxKey     = 128 // bytes of a key of a web server or script
	// MaxMessage bounds the message of a verdict or refutation, in bytes.
	MaxMessage = 1024
)

// Do runs the built-in with values of [Builtin.Fill]. A result that it doesn't declare is
// a defect of it and an error. Values that are too long are cut, and [Output.Truncated]
// says so; the messages of a verdict or [*Refuted] are cut at [MaxMessage].
//
// One that is [Builtin.ByController] is not made here.
func (b *Builtin) Do(ctx context.Context, call *Call) (Output, error) {
	if b.ByController {
		return Output{}, fmt.Errorf("%s changes objects of the API: the controller of a cluster makes it, and no node", b.Name)
	}
	out, err := b.Run(ctx, call)
	if err != nil {
		if refuted, ok := errors.AsType[*Refuted](err); ok {
			refuted.Message, _ = CutText(refuted.Message, MaxMessage)
		}
		return Output{}, err
	}
	for key := range out.Results {
		if !slices.ContainsFunc(b.Results, func(r Result) bool { return r.Name == key }) {
			return Output{}, fmt.Errorf("%s: result %s is not declared", b.Name, quoted(key))
		}
	}
	out.bound()
	return out, nil
}

// bound cuts what is too long. Keys are served in their order, so that equal results
// are cut alike.
func (o *Output) bound() {
	left := MaxResults
	for key := range o.Results {
		left -= len(key)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Results)) {
		value, cut := CutText(o.Results[key], max(0, min(MaxResult, left)))
		if cut {
			o.Results[key] = value
			o.Truncated = true
		}
		left -= len(value)
	}
	if o.Verdict != nil && len(o.Verdict.Message) > MaxMessage {
		v := *o.Verdict
		v.Message, _ = CutText(v.Message, MaxMessage)
		o.Verdict, o.Truncated = &v, true
	}
}

// CutText returns at most limit bytes of text, with "…" at the end where something of
// it is missing and there is room for that.
func CutText(text string, limit int) (short string, cut bool) {
	const mark = "…"
	if len(text) <= limit {
		return text, false
	}
	if limit < len(mark) {
		return "", true
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark, true
}

// PlainLines makes text of others fit to be shown and kept, but for line breaks and
// tabs, which results of web servers and scripts may have.
func PlainLines(text string) string {
	var b strings.Builder
	rest := text
	for {
		i := strings.IndexAny(rest, "\n\t")
		if i < 0 {
			break
		}
		b.WriteString(event.SafeText(rest[:i], i))
		b.WriteByte(rest[i])
		rest = rest[i+1:]
	}
	b.WriteString(event.SafeText(rest, len(rest)))
	return b.String()
}

// keyProblem returns why key can't be one of a result; "": it can.
func keyProblem(key string) string {
	const others = "._-/"
	switch {
	case key == "":
		return "a key is empty"
	case len(key) > maxKey:
		return fmt.Sprintf("key %s has %d bytes, at most %d", quoted(key), len(key), maxKey)
	}
	for i := range len(key) {
		c := key[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && strings.IndexByte(others, c) < 0 {
			return "key " + quoted(key) + " has other characters than letters, digits and " + others
		}
	}
	return ""
}
