package journald

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// exported returns an entry in the export format. Values with control characters are in binary
// form, as journalctl writes them.
func exported(fields ...string) []byte {
	var b bytes.Buffer
	for i := 0; i < len(fields); i += 2 {
		name, value := fields[i], fields[i+1]
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' }) {
			b.WriteString(name + "\n")
			_ = binary.Write(&b, binary.LittleEndian, uint64(len(value)))
			b.WriteString(value + "\n")
		} else {
			b.WriteString(name + "=" + value + "\n")
		}
	}
	b.WriteString("\n")
	return b.Bytes()
}

const someCursor = "s=0b938bed9d2349d6a1d5965df2893341;i=1f;b=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa;m=f4240;t=660c5194a26fa;x=f51969bf8c348590"

func TestDecoder(t *testing.T) {
	in := bytes.Join([][]byte{
		exported(
			"__CURSOR", someCursor, "__REALTIME_TIMESTAMP", "1795249509377786", "__MONOTONIC_TIMESTAMP", "1000000",
			"_BOOT_ID", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "MESSAGE", "plain = text", "PRIORITY", "3", "SYSLOG_FACILITY", "0",
			"SYSLOG_IDENTIFIER", "kernel", "_TRANSPORT", "kernel", "_UNKNOWN", "x", "EMPTY", "",
		),
		[]byte("\n"),
		exported("MESSAGE", "two\nlines\x1b[0m", "UNKNOWN_BINARY", strings.Repeat("\x00", 100_000), "_SYSTEMD_UNIT", "a.service", "_COMM", "a", "MESSAGE_ID", "b", "N_DROPPED", "7"),
		exported("MESSAGE", strings.Repeat("long ", 10)),
		exported("MESSAGE", strings.Repeat("long\n", 10)),
		exported("MESSAGE", strings.Repeat("y", 3*bufferSize), "_COMM", strings.Repeat("c", 1000)),
		exported("MESSAGE", strings.Repeat("\n", 3*bufferSize)),
		exported("MESSAGE", "last"),
		[]byte("MESSAGE=cut off\n"),
	}, nil)
	for name, r := range map[string]io.Reader{
		"at once": bytes.NewReader(in), "by bytes": iotest.OneByteReader(bytes.NewReader(in)), "by halves": iotest.HalfReader(bytes.NewReader(in)),
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDecoder(r, 40)
			var e Entry
			next := func(message string, size uint64) {
				t.Helper()
				if err := d.Next(&e); err != nil {
					t.Fatal(err)
				}
				if string(e.Message) != message || e.MessageSize != size {
					t.Errorf("message %q of %d, want %q of %d", e.Message, e.MessageSize, message, size)
				}
			}
			next("plain = text", 12)
			if string(e.Cursor) != someCursor || e.Realtime != 1795249509377786 || e.Monotonic != 1000000 || e.Seq() != 31 ||
				string(e.BootID) != strings.Repeat("a", 32) || string(e.Priority) != "3" || string(e.Facility) != "0" ||
				string(e.Identifier) != "kernel" || string(e.Transport) != "kernel" || len(e.Unit)+len(e.Comm) != 0 {
				t.Errorf("entry %+v", e)
			}
			next("two\nlines\x1b[0m", 13)
			if string(e.Unit) != "a.service" || string(e.Comm) != "a" || string(e.MessageID) != "b" || string(e.Dropped) != "7" ||
				len(e.Cursor)+len(e.Identifier) != 0 || e.Realtime != 0 {
				t.Errorf("entry %+v", e)
			}
			next(strings.Repeat("long ", 8), 50)
			next(strings.Repeat("long\n", 8), 50)
			next(strings.Repeat("y", 40), 3*bufferSize)
			if len(e.Comm) != maxValue {
				t.Errorf("a name of %d bytes", len(e.Comm))
			}
			next(strings.Repeat("\n", 40), 3*bufferSize)
			next("last", 4)
			if err := d.Next(&e); !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %v", err)
			}
		})
	}
}

func TestDecoderRefuses(t *testing.T) {
	size := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	for name, in := range map[string]string{
		"no name":           "=x\n\n",
		"a size too large":  "MESSAGE\n" + size(maxField+1) + "x\n\n",
		"the largest size":  "MESSAGE\n" + size(1<<64-1) + "x\n\n",
		"longer than said":  "MESSAGE\n" + size(1) + "xy\n\n",
		"a time of letters": "__REALTIME_TIMESTAMP=x\n\n",
		"a negative time":   "__MONOTONIC_TIMESTAMP=-1\n\n",
		"a time too large":  "__REALTIME_TIMESTAMP=18446744073709551616\n\n",
		"too many fields":   strings.Repeat("A=b\n", maxFields+1) + "\n",
		"an endless name":   strings.Repeat("A", bufferSize+1) + "\n\n",
	} {
		var e Entry
		if err := NewDecoder(strings.NewReader(in), 100).Next(&e); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("broken")
	var e Entry
	if err := NewDecoder(io.MultiReader(strings.NewReader("A=b\n"), iotest.ErrReader(broken)), 100).Next(&e); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(exported("__CURSOR", someCursor, "__REALTIME_TIMESTAMP", "1", "MESSAGE", "a", "X", "y\nz"), 10)
	f.Add(append(exported("MESSAGE", "\n\n\n"), exported("MESSAGE", strings.Repeat("x", 100))...), 3)
	f.Add([]byte("MESSAGE\n\x05\x00\x00\x00\x00\x00\x00\x00a\nb=c\n\n\n\nA=\n\n"), 100)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		limit = max(1, limit%1000)
		whole, bytewise := NewDecoder(bytes.NewReader(in), limit), NewDecoder(iotest.OneByteReader(bytes.NewReader(in)), limit)
		var e, e2 Entry
		for n := 0; ; n++ {
			err, err2 := whole.Next(&e), bytewise.Next(&e2)
			if fmt.Sprint(err) != fmt.Sprint(err2) {
				t.Fatalf("%v and %v", err, err2)
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, ErrFormat) {
					t.Fatal(err)
				}
				return
			}
			if n > len(in) {
				t.Fatal("entries without end")
			}
			if len(e.Message) > limit || e.MessageSize < uint64(len(e.Message)) || len(e.Identifier) > maxValue || len(e.Cursor) > maxValue {
				t.Fatalf("out of bounds: %+v", e)
			}
			if fmt.Sprintf("%+v", e) != fmt.Sprintf("%+v", e2) {
				t.Fatalf("%+v and %+v", e, e2)
			}
			e.Seq()
		}
	})
}

// endless returns the same bytes forever.
type endless struct {
	b  []byte
	at int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.b[e.at:])
	e.at = (e.at + n) % len(e.b)
	return n, nil
}

func usualEntry() []byte {
	return exported(
		"__CURSOR", someCursor, "__REALTIME_TIMESTAMP", "1795249509377786", "__MONOTONIC_TIMESTAMP", "1000000",
		"_BOOT_ID", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "PRIORITY", "6", "SYSLOG_FACILITY", "3", "SYSLOG_IDENTIFIER", "kubelet",
		"_COMM", "kubelet", "_SYSTEMD_UNIT", "kubelet.service", "_TRANSPORT", "stdout",
		"MESSAGE", `I1121 08:45:00.123456    1234 prober.go:107] "Probe failed" probeType="Liveness" pod="default/web-0"`,
	)
}

func TestDecoderAllocatesNothing(t *testing.T) {
	d := NewDecoder(&endless{b: usualEntry()}, maxMessage)
	var e Entry
	if n := testing.AllocsPerRun(1000, func() {
		if err := d.Next(&e); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecoder(b *testing.B) {
	in := usualEntry()
	d := NewDecoder(&endless{b: in}, maxMessage)
	var e Entry
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if err := d.Next(&e); err != nil {
			b.Fatal(err)
		}
	}
}

func TestParseJSON(t *testing.T) {
	var e Entry
	err := ParseJSON([]byte(`{"__REALTIME_TIMESTAMP":"1","__CURSOR":"s=1","MESSAGE":[97,10,98,255],"SYSLOG_IDENTIFIER":["a","b"],"OTHER":null,"_TRANSPORT":"kernel"}`), &e)
	if err != nil || string(e.Message) != "a\nb\xff" || string(e.Identifier) != "a" || e.Realtime != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []string{``, `{}`, `[]`, `{"MESSAGE":"x"}`, `{"__REALTIME_TIMESTAMP":"soon"}`, `{"__REALTIME_TIMESTAMP":{}}`, `{"__REALTIME_TIMESTAMP":"1","MESSAGE":[70000]}`, `{"__REALTIME_TIMESTAMP":"1","MESSAGE":[97,256]}`, `{"__REALTIME_TIMESTAMP":"1","MESSAGE":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`} {
		if err := ParseJSON([]byte(bad), &e); !errors.Is(err, ErrFormat) {
			t.Errorf("%.100s: %v", bad, err)
		}
	}
}

// An entry is the same in both formats of journalctl.
func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"__REALTIME_TIMESTAMP":"1","__CURSOR":"s=1","MESSAGE":[97,10,98,255],"SYSLOG_IDENTIFIER":["a","b"],"OTHER":null,"_TRANSPORT":"kernel"}`), []byte("a\xff\n"), "b", uint64(1))
	f.Add([]byte(`{"__REALTIME_TIMESTAMP":"1","MESSAGE":[[97,10],"b"],"PRIORITY":null}`), []byte("ä"), "", uint64(1<<63))
	f.Fuzz(func(t *testing.T, line, message []byte, unit string, at uint64) {
		var e, want Entry
		err := ParseJSON(line, &e)
		if err != nil && !errors.Is(err, ErrFormat) || err == nil && e.Realtime == 0 {
			t.Fatalf("%+v, %v", e, err)
		}
		unit, at = strings.ToValidUTF8(unit[:min(len(unit), maxValue)], ""), max(at, 1)
		fields := map[string]any{"__REALTIME_TIMESTAMP": strconv.FormatUint(at, 10), "_SYSTEMD_UNIT": []string{unit, "other"}, "MESSAGE": string(message)}
		if !utf8.Valid(message) {
			codes := make([]int, len(message))
			for i, c := range message {
				codes[i] = int(c)
			}
			fields["MESSAGE"] = codes
		}
		if line, err = json.Marshal(fields); err != nil {
			t.Fatal(err)
		}
		export := exported("__REALTIME_TIMESTAMP", strconv.FormatUint(at, 10), "_SYSTEMD_UNIT", unit, "MESSAGE", string(message))
		if err := errors.Join(ParseJSON(line, &e), NewDecoder(bytes.NewReader(export), len(message)+1).Next(&want)); err != nil || fmt.Sprintf("%+v", e) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s\n%+v, %v; exported as %+v", line, e, err, want)
		}
	})
}
