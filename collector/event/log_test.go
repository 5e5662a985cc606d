package event

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLogText(t *testing.T) {
	line := strings.Repeat("x", 4095)
	tests := []struct{ name, in, want string }{
		{"empty", "", ""},
		{"plain", "a\nb", "a\nb"},
		{"newline at the end", "a\nb\n", "a\nb"},
		{"each byte that is no UTF-8", "a\xff\xfeb", "a\ufffd\ufffdb"},
		{"fits", line + "\n" + line + "x", line + "\n" + line + "x"},
		{"first line goes, the rest fits", "a\n" + line + "\n" + line + "x", line + "\n" + line + "x"},
		{"first lines go", "a\n" + line + "y\n" + line + "x", line + "x"},
		{"one line too long", "a\n" + strings.Repeat("é", 4097), strings.Repeat("é", 4096)},
		{"cut in a rune", strings.Repeat("x", 8191) + "é", strings.Repeat("x", 8191)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := LogText(tt.in); got != tt.want {
				t.Errorf("%d bytes %.40q, want %d bytes %.40q", len(got), got, len(tt.want), tt.want)
			}
		})
	}
}

func TestCapturesStandInJSONOnlyWhereThereAreSome(t *testing.T) {
	b, err := json.Marshal(LogData{Log: "kmsg", Text: "a"})
	if err != nil || string(b) != `{"name":"kmsg","text":"a"}` {
		t.Errorf("%s (%v)", b, err)
	}
}

func FuzzLogText(f *testing.F) {
	f.Add("a\nb\xff", 3)
	f.Add("é\n", 5000)
	f.Fuzz(func(t *testing.T, s string, times int) {
		if times < 1 || times > 1<<14 || len(s)*times > 1<<18 {
			return
		}
		in := strings.Repeat(s, times)
		got := LogText(in)
		if len(got) > MaxLogText || !utf8.ValidString(got) {
			t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
		if LogText(got) != strings.TrimSuffix(got, "\n") {
			t.Error("done twice it is another text")
		}
	})
}
