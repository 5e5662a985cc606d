package journald

import (
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/collector/logs"
)

func TestMatches(t *testing.T) {
	dropped := []string{"+", "MESSAGE_ID=" + messageDropped, "MESSAGE_ID=" + messageMissed, "_TRANSPORT=driver"}
	for _, tt := range []struct {
		filter  Filter
		machine string
		want    []string
	}{
		{Filter{}, "", nil},
		{Filter{}, "m", []string{"_MACHINE_ID=m"}},
		{Filter{Identifiers: []string{"kernel"}}, "", append([]string{"SYSLOG_IDENTIFIER=kernel"}, dropped...)},
		{
			Filter{Identifiers: []string{"a", "-b"}, Units: []string{"kubelet", "x.scope"}}, "m",
			append(append([]string{
				"_MACHINE_ID=m", "SYSLOG_IDENTIFIER=a", "SYSLOG_IDENTIFIER=-b", "_SYSTEMD_UNIT=kubelet.service", "_SYSTEMD_UNIT=x.scope",
			}, dropped...), "_MACHINE_ID=m"),
		},
	} {
		f, err := tt.filter.normal()
		if err != nil {
			t.Fatal(err)
		}
		if got := f.matches(tt.machine); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.filter, got, tt.want)
		}
	}
	if (Filter{Units: []string{"a"}}).sum() == (Filter{Identifiers: []string{"a"}}).sum() {
		t.Error("two filters have the same sum")
	}
}

func TestConfigErrors(t *testing.T) {
	_, err := New(Config{
		Directory: "journal", Filter: Filter{Identifiers: []string{"", strings.Repeat("x", 300)}, Units: []string{"a\nb"}},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`filter ""`, `filter "a\nb.service"`, `filter "xxx`, "absolute"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestDropped(t *testing.T) {
	entry := func(id, message, n string) *Entry {
		return &Entry{Transport: []byte("driver"), MessageID: []byte(id), Message: []byte(message), Dropped: []byte(n)}
	}
	suppressed := entry(messageDropped, "Suppressed 12 messages from kubelet.service", "12")
	missed := entry(messageMissed, "Missed 34 kernel messages", "")
	forged := entry(messageDropped, "Suppressed 12 messages from kubelet.service", "12")
	forged.Transport = []byte("journal")
	for _, tt := range []struct {
		name   string
		filter Filter
		entry  *Entry
		n      uint64
	}{
		{"any", Filter{}, suppressed, 12},
		{"of the unit", Filter{Units: []string{"kubelet.service"}}, suppressed, 12},
		{"of another unit", Filter{Units: []string{"sshd.service"}}, suppressed, 0},
		{"perhaps of the identifier", Filter{Identifiers: []string{"kubelet"}}, suppressed, 12},
		{"of a unit, the kernel wanted", Filter{Identifiers: []string{"kernel"}}, suppressed, 0},
		{"of a unit, the kernel and another wanted", Filter{Identifiers: []string{"kernel", "kubelet"}}, suppressed, 12},
		{"of the kernel", Filter{}, missed, 34},
		{"of the kernel, wanted", Filter{Identifiers: []string{"kernel"}}, missed, 34},
		{"of the kernel, a unit wanted", Filter{Units: []string{"kubelet.service"}}, missed, 0},
		{"of the kernel, another wanted", Filter{Identifiers: []string{"kubelet"}}, missed, 0},
		{"not of journald", Filter{}, forged, 0},
		{"another message", Filter{}, entry("x", "", ""), 0},
		{"no number", Filter{}, entry(messageDropped, "x", "y"), 0},
		{"no number", Filter{}, entry(messageMissed, "Missed many", ""), 0},
	} {
		want := logs.Loss{Reason: logs.Suppressed, Lines: tt.n}
		if tt.entry == missed {
			want.Reason = logs.Overrun
		}
		if got := tt.filter.dropped(tt.entry); (got != nil) != (tt.n > 0) || got != nil && *got != want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

func TestPosition(t *testing.T) {
	for _, p := range []position{{filter: "1f", cursor: someCursor}, {filter: "0", since: 1795249509377786}} {
		if got, ok := parsePosition(p.text()); !ok || got != p {
			t.Errorf("%q reads as %+v, %v", p.text(), got, ok)
		}
	}
	for _, bad := range []logs.Position{
		"", "x", " " + someCursor, "f ", "f x", "f s=", "f s=1;", "f s=1;--since=0", "f S=1", "f s=xyz", "f @", "f @-1", "f @x",
		"f " + logs.Position(strings.Repeat("s=1;", 100)) + "s=1",
	} {
		if p, ok := parsePosition(bad); ok {
			t.Errorf("parsePosition(%q) = %+v", bad, p)
		}
	}
}

// A corrupted position is refused or harmless: it reads as itself, and as nothing but a cursor for
// journalctl.
func FuzzPosition(f *testing.F) {
	f.Add("1f " + someCursor)
	f.Add("0 @1795249509377786")
	f.Add("f s=1;--since=0")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePosition(logs.Position(text))
		if !ok {
			return
		}
		if strings.Trim(p.cursor, "abcdefghijklmnopqrstuvwxyz0123456789=;") != "" || p.since < 0 || p.filter == "" {
			t.Errorf("%q is %+v", text, p)
		}
		if again, ok := parsePosition(p.text()); !ok || again != p {
			t.Errorf("%q is %+v, and %+v, %v", text, p, again, ok)
		}
	})
}

func TestSameEntry(t *testing.T) {
	same := strings.Replace(strings.Replace(someCursor, "i=1f", "i=2", 1), "s=0b93", "s=ffff", 1)
	if !sameEntry([]byte(someCursor), []byte(same)) {
		t.Error("an entry that was copied to another file is another one")
	}
	for _, other := range []string{"", "s=1;i=1", strings.Replace(someCursor, "x=f5", "x=e5", 1), strings.Replace(someCursor, "t=66", "t=67", 1)} {
		if sameEntry([]byte(someCursor), []byte(other)) {
			t.Errorf("%q is the same", other)
		}
	}
}
