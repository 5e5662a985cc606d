package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/kernosis/kernosis/collector/display"
)

// Bounds of the output of one operation, so that the results of a whole graph fit into the status
// of a Diagnosis.
const (
	MaxResult  = 2 << 10 // bytes of a value
	MaxResults = 8 << 10 // bytes of all keys and values
	MaxKeys    = 64
	maxKey     = 128 // bytes of a key from a web server or script
	// MaxMessage bounds the message of a verdict or refutation, in bytes.
	MaxMessage = 1024
)

// Do runs the built-in with values from [Builtin.Fill]. A result that the built-in doesn't declare
// is a bug of the built-in and causes an error. Do cuts values that are too long and sets
// [Output.Truncated]; it cuts the messages of a verdict or [*Refuted] at [MaxMessage].
//
// A built-in that is [Builtin.ByController] returns an error.
func (b *Builtin) Do(ctx context.Context, call *Call) (Output, error) {
	if b.ByController {
		return Output{}, fmt.Errorf("%s changes API objects: only the cluster's controller can run it, not a node", b.Name)
	}
	out, err := b.Run(ctx, call)
	if err != nil {
		if refuted, ok := errors.AsType[*Refuted](err); ok {
			refuted.Message = display.Cut(refuted.Message, MaxMessage)
		}
		return Output{}, err
	}
	for key := range out.Results {
		if !slices.ContainsFunc(b.Results, func(r Result) bool { return r.Name == key }) {
			return Output{}, fmt.Errorf("%s: result %s is not declared", b.Name, Quoted(key))
		}
	}
	out.Bound()
	return out, nil
}

// Bound cuts values that are too long. It visits keys in sorted order, so that equal results are
// cut alike.
func (o *Output) Bound() {
	left := MaxResults
	for key := range o.Results {
		left -= len(key)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Results)) {
		value := display.Cut(o.Results[key], min(MaxResult, left))
		if value != o.Results[key] {
			o.Results[key], o.Truncated = value, true
		}
		left -= len(value)
	}
	if o.Verdict != nil && len(o.Verdict.Message) > MaxMessage {
		v := *o.Verdict
		v.Message = display.Cut(v.Message, MaxMessage)
		o.Verdict, o.Truncated = &v, true
	}
}

// KeyProblem returns why key can't be the key of a result; "" if it can.
func KeyProblem(key string) string {
	switch {
	case key == "":
		return "a key is empty"
	case len(key) > maxKey:
		return fmt.Sprintf("key %s has %d bytes, at most %d", Quoted(key), len(key), maxKey)
	case !keyForm.MatchString(key):
		return "key " + Quoted(key) + " contains characters other than letters, digits and ._-/"
	}
	return ""
}

var keyForm = regexp.MustCompile(`^[0-9A-Za-z._/-]+$`)
