package operation

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestResultsAreBounded(t *testing.T) {
	b := Builtin{Name: "b", Results: []Result{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}, {Name: "f"}}}
	b.Run = func(context.Context, *Call) (Output, error) {
		return Output{
			Results: map[string]string{
				"a": strings.Repeat("a", MaxResult), "b": strings.Repeat("ä", MaxResult), "c": strings.Repeat("c", MaxResult),
				"d": strings.Repeat("d", MaxResult), "e": "e", "f": strings.Repeat("f", 3),
			},
			Verdict: &Verdict{Reason: "R", Message: strings.Repeat("m", MaxMessage+1)},
		}, nil
	}
	out, err := b.Do(t.Context(), &Call{})
	if err != nil || !out.Truncated {
		t.Fatalf("%+v, %v", out, err)
	}
	sum := 0
	for k, v := range out.Results {
		sum += len(k) + len(v)
		if len(v) > MaxResult || !utf8.ValidString(v) {
			t.Errorf("%s has %d bytes", k, len(v))
		}
	}
	if sum > MaxResults || len(out.Results["a"]) != MaxResult || !strings.HasSuffix(out.Results["b"], "ä…") ||
		!strings.HasSuffix(out.Results["d"], "d…") || out.Results["f"] != "" {
		t.Errorf("%d bytes: %q", sum, out.Results["f"])
	}
	if len(out.Verdict.Message) != MaxMessage || !strings.HasSuffix(out.Verdict.Message, "m…") {
		t.Errorf("%d bytes of message", len(out.Verdict.Message))
	}
}

func TestUndeclaredResult(t *testing.T) {
	b := Builtin{Name: "b", Run: func(context.Context, *Call) (Output, error) {
		return Output{Results: map[string]string{"x\n": ""}}, nil
	}}
	if _, err := b.Do(t.Context(), &Call{}); err == nil || err.Error() != `b: result "x\n" is not declared` {
		t.Error(err)
	}
}

func TestKeys(t *testing.T) {
	for _, key := range []string{"a", "operation.x-1.output", "A/b_c", strings.Repeat("k", maxKey)} {
		if p := KeyProblem(key); p != "" {
			t.Error(p)
		}
	}
	for _, key := range []string{"", "a b", "a\n", "ä", "a:b", strings.Repeat("k", maxKey+1)} {
		if KeyProblem(key) == "" {
			t.Errorf("%q is taken for a key", key)
		}
	}
}
