package hostfs

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// kernelRecords are records as printed by kernels 5.10 to 7.2.
var kernelRecords = []struct {
	name, in string
	want     KernelRecord
	text     string
}{
	{
		name: "kernel 6.18",
		in:   "6,68063,10601675354,-;unevictable 0\n",
		want: KernelRecord{Seq: 68063, Time: 10601675354 * time.Microsecond, Level: 6},
		text: "unevictable 0",
	},
	{
		name: "with dictionary and caller",
		in:   "3,812,5140900,-,caller=T123;blk_update_request: I/O error, dev sda\n SUBSYSTEM=scsi\n DEVICE=+scsi:0:0:0:0\n",
		want: KernelRecord{
			Seq: 812, Time: 5140900 * time.Microsecond, Level: 3,
			Subsystem: []byte("scsi"), Device: []byte("+scsi:0:0:0:0"),
		},
		text: "blk_update_request: I/O error, dev sda",
	},
	{
		name: "user space, facility daemon",
		in:   "30,1066,6211200,-;systemd[1]: Started kubelet.\n",
		want: KernelRecord{Seq: 1066, Time: 6211200 * time.Microsecond, Level: 6, Facility: 3},
		text: "systemd[1]: Started kubelet.",
	},
	{
		name: "fragment",
		in:   "6,339,5140900,c;NET: \n",
		want: KernelRecord{Seq: 339, Time: 5140900 * time.Microsecond, Level: 6, Fragment: true},
		text: "NET: ",
	},
	{
		name: "later fragment of kernels before 5.0",
		in:   "6,340,5140900,+;Registered protocol family 10\n",
		want: KernelRecord{Seq: 340, Time: 5140900 * time.Microsecond, Level: 6, Fragment: true},
		text: "Registered protocol family 10",
	},
	{
		name: "fields that are not known yet",
		in:   "4,7,1,-,cpu=3,caller=C1,comm=x;text; with; semicolons\n",
		want: KernelRecord{Seq: 7, Time: time.Microsecond, Level: 4},
		text: "text; with; semicolons",
	},
	{
		name: "escapes",
		in:   `12,8,1,-;caf\xc3\xa9 C:\x5cdir a\x0ab \x1b[31m \x7f \x5cx0a \x \xg0 \` + "\n",
		want: KernelRecord{Seq: 8, Time: time.Microsecond, Level: 4, Facility: 1},
		text: `café C:\dir a\x0ab \x1b[31m \x7f \x0a \x \xg0 \`,
	},
	{
		name: "no line feed, no text",
		in:   "6,1,0,-;",
		want: KernelRecord{Seq: 1, Level: 6},
	},
	{
		name: "the largest of everything",
		in:   "2047,9999999999999999999,9223372036854775,-;x",
		want: KernelRecord{Seq: 9999999999999999999, Time: 9223372036854775 * time.Microsecond, Level: 7, Facility: 255},
		text: "x",
	},
}

func TestParseKernelRecord(t *testing.T) {
	var r KernelRecord
	for _, tt := range kernelRecords {
		t.Run(tt.name, func(t *testing.T) {
			before := strings.Clone(tt.in)
			in := []byte(tt.in)
			seqOK, err := ParseKernelRecord(in, &r)
			if err != nil || !seqOK {
				t.Fatalf("ParseKernelRecord: %v, %v", seqOK, err)
			}
			if string(in) != before {
				t.Errorf("the input was changed: %q", in)
			}
			if string(r.Text) != tt.text {
				t.Errorf("text %q, want %q", r.Text, tt.text)
			}
			w := tt.want
			if r.Seq != w.Seq || r.Time != w.Time || r.Level != w.Level || r.Facility != w.Facility || r.Fragment != w.Fragment ||
				!bytes.Equal(r.Subsystem, w.Subsystem) || !bytes.Equal(r.Device, w.Device) {
				t.Errorf("got %+v, want %+v", r, w)
			}
		})
	}
}

func TestParseKernelRecordRefuses(t *testing.T) {
	for in, seqOK := range map[string]bool{
		"":                           false,
		"\n":                         false,
		"6":                          false,
		"6,":                         false,
		",1,2,-;x":                   false,
		"-6,1,2,-;x":                 false,
		"2048,1,2,-;x":               false,
		"6,99999999999999999999,1,-": false,
		"6,x,2,-;x":                  false,
		"6,1,,-;x":                   true,
		"6,1,2;x":                    true,
		"6,1,2,-":                    true,
		"6,1,9223372036854776,-;x":   true,
	} {
		var r KernelRecord
		got, err := ParseKernelRecord([]byte(in), &r)
		if !errors.Is(err, ErrKernelRecord) || got != seqOK {
			t.Errorf("ParseKernelRecord(%q) = %v, %v; want %v and ErrKernelRecord", in, got, err, seqOK)
		}
		if got && r.Seq != 1 {
			t.Errorf("ParseKernelRecord(%q) gives number %d", in, r.Seq)
		}
	}
}

func FuzzParseKernelRecord(f *testing.F) {
	for _, tt := range kernelRecords {
		f.Add([]byte(tt.in))
	}
	f.Add([]byte("6,1,2,-;\\x5c\\x41\\xfF\\x0\n DEVICE=\n SUBSYSTEM=\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var r KernelRecord
		seqOK, err := ParseKernelRecord(in, &r)
		if err != nil && !errors.Is(err, ErrKernelRecord) || err == nil && !seqOK {
			t.Fatalf("%v, %v", seqOK, err)
		}
		if err != nil {
			return
		}
		if len(r.Text) > len(in) || r.Level > 7 || r.Level < 0 || r.Facility > 255 || r.Time < 0 {
			t.Fatalf("out of bounds: %+v", r)
		}
		if bytes.IndexByte(r.Text, '\n') >= 0 {
			t.Fatalf("a line feed in %q", r.Text)
		}
		// An escape must not produce a character that the kernel can't have sent unescaped.
		if !bytes.ContainsFunc(in, func(c rune) bool { return c < ' ' && c != '\n' }) &&
			bytes.ContainsFunc(r.Text, func(c rune) bool { return c < ' ' }) {
			t.Fatalf("a control character in %q from %q", r.Text, in)
		}
	})
}

func BenchmarkParseKernelRecord(b *testing.B) {
	for _, bench := range []struct{ name, in string }{
		{"plain", "6,68063,10601675354,-;Memory cgroup out of memory: Killed process 30451 (kn-oom-child) total-vm:104400kB, anon-rss:32000kB\n"},
		{"escapes", `6,68063,10601675354,-;caf\xc3\xa9 na\xc3\xafve \xc3\xbcber r\xc3\xb4le fa\xc3\xa7ade C:\x5cdir\x5cdir` + "\n"},
		{"dictionary", "3,812,5140900,-,caller=T123;sd 0:0:0:0: [sda] Unhandled error code\n SUBSYSTEM=scsi\n DEVICE=+scsi:0:0:0:0\n"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			in := []byte(bench.in)
			var r KernelRecord
			b.ReportAllocs()
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				if _, err := ParseKernelRecord(in, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
