package document

import "testing"

func TestErrorText(t *testing.T) {
	for want, e := range map[string]*Error{
		"f: m":          {File: "f", Msg: "m"},
		"f:3: m":        {File: "f", Line: 3, Msg: "m"},
		"f:3:4: a.b: m": {File: "f", Line: 3, Column: 4, Field: "a.b", Msg: "m"},
	} {
		if have := e.Error(); have != want {
			t.Errorf("have %q, want %q", have, want)
		}
	}
}
