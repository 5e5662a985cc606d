package logs

import "fmt"

// EscapeControl returns a kernel message as one line: each control character becomes "\xNN", as
// /dev/kmsg prints it. Text without control characters is returned as it is.
func EscapeControl(text []byte) []byte {
	for i, c := range text {
		if c < ' ' || c == 0x7f {
			out := append(make([]byte, 0, len(text)+16), text[:i]...)
			for _, c := range text[i:] {
				if c < ' ' || c == 0x7f {
					out = fmt.Appendf(out, `\x%02x`, c)
				} else {
					out = append(out, c)
				}
			}
			return out
		}
	}
	return text
}
