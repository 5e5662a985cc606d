package kernel

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestKernelParts(t *testing.T) {
	for depends, want := range map[string][]string{
		"": nil,
		"kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool":                                                    nil,
		"linux-image-5.10.0-32-cloud-amd64 (= 5.10.223-1)":                                                                                        {"linux-image-5.10.0-32-cloud-amd64=5.10.223-1"},
		"linux-base-cloud-amd64 (= 7.3~rc7-1~exp1), linux-image-7.3-cloud-amd64 (= 7.3~rc7-1~exp1), linux-modules-cloud-amd64 (= 7.3~rc7-1~exp1)": {"linux-image-7.3-cloud-amd64=7.3~rc7-1~exp1"},
		"dracut | linux-initramfs-tool, linux-base-7.2.13+deb14-amd64 (= 7.2.13-1), linux-binary-7.2.13+deb14-amd64 ( =7.2.13-1 ),\n linux-modules-7.2.13+deb14-amd64:amd64 (= 1:7.2.13-1)": {
			"linux-base-7.2.13+deb14-amd64=7.2.13-1", "linux-binary-7.2.13+deb14-amd64=7.2.13-1", "linux-modules-7.2.13+deb14-amd64=1:7.2.13-1"},
		"linux-image-6.1 (>= 6), linux-image-6.2": {"linux-image-6.1", "linux-image-6.2"},
		"linux-headers-6.1 (= 6), linux-image-":   nil,
	} {
		if got := kernelParts(depends); !slices.Equal(got, want) {
			t.Errorf("%q:\n got %v\nwant %v", depends, got, want)
		}
	}
}

func TestParseRecords(t *testing.T) {
	const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const good = "Package: linux-image-6.1\nVersion: 6.1-1\nInstalled-Size: 10\nPre-Depends: linux-base-6.1\nDepends: linux-modules-6.1 (= 6.1-1)\nFilename: pool/main/l/x_6.1_amd64.deb\nSize: 4\nSHA256: " + sum + "\nDescription: a\n b\n .\n"
	records, err := parseRecords([]byte(good + "\n" + good))
	if err != nil || len(records) != 2 {
		t.Fatalf("%+v, %v", records, err)
	}
	r := records[1]
	if r.name != "linux-image-6.1" || r.version != "6.1-1" || r.file != "x_6.1_amd64.deb" || r.size != 4 || r.installed != 10240 || r.sha256 != sum ||
		!slices.Equal(r.parts, []string{"linux-base-6.1", "linux-modules-6.1=6.1-1"}) {
		t.Errorf("record is %+v", r)
	}
	for field, bad := range map[string]string{
		"Package: linux-image-6.1": "", "Version: 6.1-1": "", "Filename: pool/main/l/x_6.1_amd64.deb": "",
		"SHA256: " + sum: "SHA256: " + sum[1:], "Size: 4\n": "Size: -4\n", "Installed-Size: 10": "Installed-Size: 9999999999999999",
	} {
		text := strings.Replace(good, field, bad, 1)
		if text == good {
			t.Fatalf("no %q", field)
		}
		if records, err := parseRecords([]byte(text)); err == nil {
			t.Errorf("%q in the place of %q: %+v", bad, field, records)
		}
	}
}

func FuzzParseControl(f *testing.F) {
	f.Add([]byte("A: b\n c\n .\n# d\nE:\n f\n\n\nG: h"))
	f.Add([]byte("x\n y\n: z\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		stanzas, err := parseControl(bytes.NewReader(text))
		if err != nil {
			t.Skip(err)
		}
		var again strings.Builder
		for _, st := range stanzas {
			if len(st) == 0 {
				t.Fatal("an empty stanza")
			}
			for name, value := range st {
				if name != strings.ToLower(name) {
					t.Fatalf("name %q", name)
				}
				kernelParts(value)
			}
			for _, name := range slices.Sorted(maps.Keys(st)) {
				again.WriteString(name + ": " + strings.ReplaceAll(st[name], "\n", "\n ") + "\n")
			}
			again.WriteString("\n")
		}
		_, _ = parseRecords(text)
		if second, err := parseControl(strings.NewReader(again.String())); err == nil && len(second) > len(stanzas) {
			t.Fatalf("%d stanzas became %d: %q", len(stanzas), len(second), again.String())
		}
	})
}
