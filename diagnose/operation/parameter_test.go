package operation

import (
	"maps"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestCheckParameter(t *testing.T) {
	integer, duration, size := Parameter{Kind: Integer}, Parameter{Kind: Duration}, Parameter{Kind: Bytes}
	bounded := Parameter{Kind: Integer, Min: 2, Max: 10}
	seconds := Parameter{Kind: Duration, Min: int64(time.Second), Max: int64(time.Minute)}
	part := Parameter{Kind: Bytes, Min: 1 << 10, Max: 1 << 20}
	short := Parameter{Kind: String, Min: 2, Max: 4}
	boolean, address, text := Parameter{Kind: Boolean}, Parameter{Kind: Address}, Parameter{Kind: String}
	enum := Parameter{Kind: Enum, Values: []string{"tcp", "udp"}}
	for _, tt := range []struct {
		p    Parameter
		text string
		want string // "": it is valid
	}{
		{integer, "", ""}, {integer, "0", ""}, {integer, "9223372036854775807", ""}, {integer, "007", ""},
		{integer, "9223372036854775808", `"9223372036854775808" is out of range`},
		{integer, "-1", "-1 is negative"}, {integer, "+1", `"+1": want a whole number`}, {integer, "1_0", `"1_0": want a whole number`},
		{integer, "0x10", `"0x10": want a whole number`}, {integer, " 1", `" 1": want a whole number`}, {integer, "1.0", `"1.0": want a whole number`},
		{integer, "\x1b[2J", `"\x1b[2J": want a whole number`},
		{bounded, "1", "1 is less than 2"}, {bounded, "2", ""}, {bounded, "10", ""}, {bounded, "11", "11 is more than 10"},
		{duration, "0", ""}, {duration, "1m30s", ""}, {duration, "-5s", "-5s is negative"}, {duration, "5", `"5": want a duration such as 1m30s`},
		{duration, "300000h", ""}, {duration, "3000000h", `"3000000h": want a duration such as 1m30s`}, {duration, "NaNs", `"NaNs": want a duration such as 1m30s`},
		{seconds, "999ms", "999ms is less than 1s"}, {seconds, "61s", "1m1s is more than 1m0s"}, {seconds, "60s", ""},
		{size, "512Ki", ""}, {size, "1.5Gi", ""}, {size, "0", ""}, {size, "4k", ""}, {size, "4096", ""},
		{size, "0.5", `"0.5": want a whole number of bytes`}, {size, "1m", `"1m": want a number of bytes such as 512Ki`},
		{size, "-1Ki", `"-1Ki" is negative`}, {size, "-0.1", `"-0.1" is negative`},
		{size, "8Ei", `"8Ei" is out of range`}, {size, "99999999999999999999", `"99999999999999999999" is out of range`},
		{size, "1e3", `"1e3": want a number of bytes such as 512Ki`}, {size, "1E999999999", `"1E999999999": want a number of bytes such as 512Ki`},
		{size, "1..5", `"1..5": want a number of bytes such as 512Ki`}, {size, "Ki", `"Ki": want a number of bytes such as 512Ki`},
		{size, strings.Repeat("1", 33), `"` + strings.Repeat("1", 33) + `": want a number of bytes such as 512Ki`},
		{part, "1000", "1k is less than 1Ki"}, {part, "1Mi", ""}, {part, "2Mi", "2Mi is more than 1Mi"},
		{boolean, "true", ""}, {boolean, "false", ""}, {boolean, "True", `"True": want true or false`}, {boolean, "1", `"1": want true or false`},
		{address, "10.0.0.1", ""}, {address, "fe80::1%eth0", ""}, {address, "::ffff:10.0.0.1", ""}, {address, "10.0.0.1:80", `"10.0.0.1:80": want an IP address`},
		{address, "localhost", `"localhost": want an IP address`}, {address, "fe80::1%a/b", `"fe80::1%a/b": want an IP address`},
		{address, "fe80::1%\n", `"fe80::1%\n": want an IP address`}, {address, "fe80::1%abcdefghijklmnop", `"fe80::1%abcdefghijklmnop": want an IP address`},
		{enum, "tcp", ""}, {enum, "sctp", `"sctp": want one of tcp, udp`}, {enum, "tcp ", `"tcp ": want one of tcp, udp`},
		{text, "a b ä", ""}, {text, "a\nb", `"a\nb" contains unprintable characters`}, {text, "\xff", `"\xff" contains unprintable characters`},
		{text, "a\u202eb", `"a\u202eb" contains unprintable characters`}, {text, strings.Repeat("x", MaxText), ""},
		{text, strings.Repeat("x", MaxText+1), "4097 bytes, at most 4096"},
		{short, "a", "1 bytes is less than 2 bytes"}, {short, "abcd", ""}, {short, "abcde", "5 bytes is more than 4 bytes"},
		{Parameter{Kind: Enum, Values: []string{"a"}}, strings.Repeat("y", 300), `"` + strings.Repeat("y", 80) + `…": want one of a`},
	} {
		got := ""
		if err := tt.p.Check(tt.text); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.p.Kind, tt.text, got, tt.want)
		}
	}
}

func TestFill(t *testing.T) {
	b := Builtin{Name: "b", Parameters: []Parameter{
		{Name: "need", Kind: Integer, Required: true},
		{Name: "size", Kind: Bytes, Default: "4Ki"},
		{Name: "name", Kind: String},
		{Name: "wait", Kind: Duration, Default: "5s"},
		{Name: "address", Kind: Address},
		{Name: "on", Kind: Boolean, Default: "true"},
	}}
	got, err := b.Fill(
		map[string]string{"need": "", "name": "first", "other": "x"},
		nil,
		map[string]string{"need": "7", "name": "second", "size": "", "address": "10.0.0.1"},
		map[string]string{"need": "8"},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := Values{"need": "7", "size": "4Ki", "name": "first", "wait": "5s", "address": "10.0.0.1", "on": "true"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got.Int("need") != 7 || got.Bytes("size") != 4096 || got.Duration("wait") != 5*time.Second || !got.Bool("on") ||
		got.Addr("address") != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("%v", got)
	}
	if got.Int("none") != 0 || got.Bytes("none") != 0 || got.Duration("none") != 0 || got.Bool("none") || got.Addr("none").IsValid() {
		t.Error("a parameter that isn't given has a value")
	}
	_, err = b.Fill(map[string]string{"size": "x", "wait": "-1s"})
	if err == nil || err.Error() != `b: parameter need is required; parameter size: "x": want a number of bytes such as 512Ki; parameter wait: -1s is negative` {
		t.Errorf("%v", err)
	}
}

// FuzzCheckParameter: accepted text has the value that it says; other text is refused with a
// bounded message.
func FuzzCheckParameter(f *testing.F) {
	for _, s := range []string{"", "1", "-1", "1m30s", "512Ki", "1.5Gi", "0.1", "9223372036854775807", "8Ei", "fe80::1%eth0", "true", "a\u202e\xff", "1E9999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range []Parameter{
			{Name: "p", Kind: Integer, Max: math.MaxInt64}, {Name: "p", Kind: Duration}, {Name: "p", Kind: Bytes, Max: 1 << 40},
			{Name: "p", Kind: Address}, {Name: "p", Kind: Boolean}, {Name: "p", Kind: String, Max: 100}, {Name: "p", Kind: Enum, Values: []string{"a", "b"}},
		} {
			b := Builtin{Name: "b", Parameters: []Parameter{p}}
			v, err := b.Fill(map[string]string{"p": text})
			if err != nil {
				if s := err.Error(); len(s) > 500 || !utf8.ValidString(s) || strings.ContainsAny(s, "\n\x1b\x00") {
					t.Errorf("%s %q: error %q", p.Kind, text, s)
				}
				continue
			}
			if n := v.Int("p"); p.Kind == Integer && n < 0 {
				t.Errorf("%q: %d", text, n)
			}
			if n := v.Bytes("p"); p.Kind == Bytes && (n < 0 || n > p.Max) {
				t.Errorf("%q: %d", text, n)
			}
			if d := v.Duration("p"); p.Kind == Duration && d < 0 {
				t.Errorf("%q: %v", text, d)
			}
			if a := v.Addr("p"); p.Kind == Address && text != "" && !a.IsValid() {
				t.Errorf("%q: %v", text, a)
			}
		}
	})
}
