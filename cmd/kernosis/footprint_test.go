package main

import (
	"os"
	"testing"
)

func TestReadOnlyMappings(t *testing.T) {
	const file = "/bin/kernosis"
	for line, want := range map[string][2]uintptr{
		"00400000-0173c000 r-xp 00000000 fe:00 10815514                           /bin/kernosis": {0x400000, 0x133c000},
		"0173c000-02b39000 r--p 0133c000 fe:00 10815514                           /bin/kernosis": {0x173c000, 0x13fd000},
		"02b39000-02c70000 rw-p 02739000 fe:00 10815514                           /bin/kernosis": {},
		"02b39000-02c70000 r--s 02739000 fe:00 10815514                           /bin/kernosis": {},
		"00400000-0173c000 r-xp 00000000 fe:00 10815514                           /bin/other":    {},
		"c000000000-c000400000 rw-p 00000000 00:00 0 ":                                           {},
		"x-y r-xp 00000000 fe:00 10815514 /bin/kernosis":                                         {},
		"02-01 r-xp 00000000 fe:00 10815514 /bin/kernosis":                                       {},
		"": {},
	} {
		start, length, ok := readOnly(line, file)
		if start != want[0] || length != want[1] || ok != (want[1] != 0) {
			t.Errorf("%q: %x, %x, %v", line, start, length, ok)
		}
	}
}

// The program goes on as before.
func TestForgetPages(t *testing.T) {
	if err := forgetPages("/proc/self/maps"); err != nil {
		t.Error(err)
	}
	if err := forgetPages("/proc/self/no-such-file"); !os.IsNotExist(err) {
		t.Errorf("error %v", err)
	}
}
