package kernel

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const key = "/usr/share/keyrings/debian-archive-keyring.gpg"

func TestParseSources(t *testing.T) {
	debian := source{uri: "http://mirror/debian", suites: []string{"stable"}, components: []string{"main"}}
	signed := debian
	signed.signedBy = key
	for _, test := range []struct {
		name, text string
		want       []source
	}{
		{"a.list", "deb http://mirror/debian stable main", []source{debian}},
		{"a.list", "# c\n\n  deb\thttp://mirror/debian  stable main # c\n", []source{debian}},
		{"a.list", "deb [arch=amd64 signed-by=" + key + "] http://mirror/debian stable main", []source{signed}},
		{"a.list", "deb-src http://mirror/debian stable main\n#deb http://mirror/debian stable main\ndebx a b c\ndeb [x http://a b c\ndeb http://a b\ndeb", nil},
		{"a.sources", "Types: deb deb-src\nURIs: http://mirror/debian\nSuites: stable\nComponents: main\n", []source{debian}},
		{"a.sources", "# c\nTypes: deb\n# c\nURIs:\n http://mirror/debian\nSuites: stable\nComponents: main\nSigned-By: " + key + "\n\n\nTypes: deb-src\nURIs: x\n", []source{signed}},
		{"a.sources", "Enabled: no\nTypes: deb\nURIs: http://mirror/debian\nSuites: stable\nComponents: main\n", nil},
		{"a.sources", "types: deb\nuris: http://mirror/debian http://other/debian\nsuites: stable\ncomponents: main\n", []source{
			debian, {uri: "http://other/debian", suites: []string{"stable"}, components: []string{"main"}}}},
		{"a.sources", "Types: deb\nURIs: http://mirror/debian\nSuites: stable\nComponents: main\nSigned-By:\n -----BEGIN\n .\n xyz\n", []source{
			{uri: "http://mirror/debian", suites: []string{"stable"}, components: []string{"main"}, signedBy: "-----BEGIN\n.\nxyz"}}},
	} {
		got, err := parseSources(test.name, strings.NewReader(test.text))
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s %q:\n got %+v, error %v\nwant %+v", test.name, test.text, got, err, test.want)
		}
	}
}

func TestFindMirror(t *testing.T) {
	const stanza = "Types: deb\nURIs: %\nSuites: stable stable-updates\nComponents: main\nSigned-By: " + key + "\n"
	at := func(uri string) string { return strings.ReplaceAll(stanza, "%", uri) }
	for name, test := range map[string]struct {
		files map[string]string
		env   string
		want  string
	}{
		"stanzas":        {files: map[string]string{"sources.list.d/debian.sources": at("http://mirror/debian")}, want: "http://mirror/debian"},
		"lines":          {files: map[string]string{"sources.list": "deb https://mirror/debian/ stable main contrib\n"}, want: "https://mirror/debian/"},
		"lines, folder":  {files: map[string]string{"sources.list.d/a.list": "deb http://mirror/debian stable main\n"}, want: "http://mirror/debian"},
		"proxy's path":   {files: map[string]string{"sources.list.d/a.list": "deb [signed-by=" + key + "] http://cache:3142/remote/main stable main\n"}, want: "http://cache:3142/remote/main"},
		"folder of disk": {files: map[string]string{"sources.list": "deb file:/srv/debian stable main"}, want: "file:/srv/debian"},
		"security first": {files: map[string]string{"sources.list": "deb http://sec/debian stable-security main\ndeb http://mirror/debian stable main"}, want: "http://mirror/debian"},
		"others first": {files: map[string]string{
			"sources.list":             "deb cdrom:[Debian]/ stable main\ndeb [signed-by=/other.gpg] https://other/stable/debian stable main\ndeb http://more/debian stable contrib\n",
			"sources.list.d/z.sources": at("http://mirror/debian"),
		}, want: "http://mirror/debian"},
		"overridden": {files: map[string]string{"sources.list": "deb http://mirror/debian stable main"}, env: "http://mine/x", want: "http://mine/x"},
		"none":       {},
		"disabled":   {files: map[string]string{"sources.list.d/debian.sources": "Enabled: no\n" + at("http://mirror/debian")}},
		"other file": {files: map[string]string{"sources.list.d/debian.sources.save": at("http://mirror/debian")}},
		"no URL":     {env: "mirror"},
		"two words":  {env: "http://a b"},
		"option":     {env: "[trusted=yes] http://a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(mirrorEnv, test.env)
			etc := t.TempDir()
			for path, text := range test.files {
				write(t, filepath.Join(etc, path), text)
			}
			got, err := findMirror(etc)
			if test.want == "" {
				wantSetupError(t, err, mirrorEnv)
				return
			}
			if err != nil || got != test.want {
				t.Errorf("mirror is %q, error %v, want %q", got, err, test.want)
			}
		})
	}
}

func FuzzParseSources(f *testing.F) {
	f.Add(true, []byte("Types: deb\nURIs: http://m/debian\nSuites: a b\nComponents: main\nSigned-By:\n x\n .\n\nEnabled: no\n"))
	f.Add(false, []byte("deb [signed-by=x] http://m/debian a main\ndeb-src y\n"))
	f.Fuzz(func(t *testing.T, stanzas bool, text []byte) {
		name := "a.list"
		if stanzas {
			name = "a.sources"
		}
		sources, err := parseSources(name, bytes.NewReader(text))
		if err != nil {
			t.Skip(err)
		}
		for _, s := range sources {
			// The URI becomes one word of a line in apt's sources.
			if len(strings.Fields(s.uri)) != 1 {
				t.Fatalf("%q", s.uri)
			}
			if s.debian() && (!strings.Contains(s.uri, ":/") || len(s.suites) == 0) {
				t.Fatalf("%+v", s)
			}
		}
	})
}
