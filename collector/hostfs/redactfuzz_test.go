package hostfs

import (
	"slices"
	"strings"
	"testing"
	"unicode"
)

// secretNames returns names whose values are secrets.
func secretNames() []string {
	return []string{
		"password", "PASSWD", "passphrase", "secret", "Credential", "api-key", "accesskey", "private.key", "key-data", "authorization",
		"db-pass", "PWD", "my.pw", "token", "auth", "jwt", "bearer", "cookie", "accessToken", "dbPass", "dbPwd",
	}
}

const secretBegin, secretEnd = "Qz7", "xK9"

// plant returns form with a name of a secret for NAME, and for VALUE a secret that begins and ends
// with known text and has no character of without and no space.
func plant(form string, name uint8, filler, without string) string {
	filler = strings.Map(func(r rune) rune {
		if strings.ContainsRune(without, r) || unicode.IsSpace(r) || r == 0 {
			return -1
		}
		return r
	}, filler)
	names := secretNames()
	return strings.NewReplacer("NAME", names[int(name)%len(names)], "VALUE", secretBegin+filler+secretEnd).Replace(form)
}

func hasSecret(text string) bool {
	return strings.Contains(text, secretBegin) || strings.Contains(text, secretEnd)
}

// harmless reports whether a text has neither a secret nor a word that announces one.
func harmless(text string) bool {
	return !mayHaveSecret(text) && !strings.Contains(text, "PRIVATE") && !hasSecret(text)
}

func FuzzRedactText(f *testing.F) {
	forms := []struct{ text, without, end string }{
		{"NAME=VALUE", `\"',;}]`, ""},
		{"NAME: VALUE", `\"',;}]`, ""},
		{"--NAME VALUE", `\"'`, ""},
		{"--NAME=VALUE", `\"'`, ""},
		{`NAME="VALUE and VALUE"`, `\"`, ""},
		{`NAME = 'VALUE and VALUE'`, `\"'`, ""},
		{`{"NAME":"VALUE","name":"web"}`, `\"`, ""},
		{`{"name":"NAME","value":"VALUE and VALUE"}`, `\"`, ""},
		{`env="{\"name\":\"NAME\",\"value\":\"VALUE\"}"`, `\"`, ""},
		{`{Name:NAME Value:VALUE}`, `\"',;}]`, ""},
		{`error="{\"NAME\":\"VALUE\"}"`, `\"`, ""},
		{`text="error=\"{\\\"NAME\\\": \\\"VALUE\\\"}\""`, `\"`, ""},
		{`mysql --NAME 'VALUE and VALUE' -h db`, `\"'`, ""},
		{`error="mysql --NAME \"VALUE and VALUE\" -h db"`, `\"'`, ""},
		{`error="curl: Authorization: Bearer VALUE"`, `"`, ""},
		{`curl -H 'X-Vault-Token: VALUE' https://x`, `'`, ""},
		{"Cookie: a=VALUE; c=VALUE", "", ""},
		{"Bearer VALUE", `\"'`, ""},
		{"curl -u web:VALUE", `\"'`, ""},
		{"curl --user 'web:VALUE and VALUE'", `\"'`, ""},
		{"-----BEGIN EC PRIVATE KEY-----\nVALUE", "-", "-----END EC PRIVATE KEY-----"},
		{"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: DES-CBC,3F17\n\nVALUE", "-", "\n-----END RSA PRIVATE KEY-----"},
	}
	for i := range forms {
		f.Add("level=INFO msg=watching\n", uint8(i), uint8(i), `a,b"c\d'e;f`, "\nnext line", uint16(1000))
		f.Add("mount", uint8(3*i), uint8(i), "", "of web", uint16(40))
	}
	f.Fuzz(func(t *testing.T, before string, name, form uint8, filler, after string, cut uint16) {
		text := RedactText(before)
		if again := RedactText(text); again != text {
			t.Errorf("redacted again\n%q becomes\n%q", text, again)
		}
		if !harmless(before) || !harmless(after) {
			return
		}
		if text != before {
			t.Errorf("%q has no secret and becomes %q", before, text)
		}
		if strings.ContainsAny(before, `\"'`) {
			return // a quotation of which the secret may contain the end
		}
		if value := RedactValue(plant("NAME", name, "", ""), secretBegin+filler); value != Redacted || RedactValue("comment", before) != before {
			t.Errorf("value %q, %q", value, RedactValue("comment", before))
		}
		of := forms[int(form)%len(forms)]
		text = before + " " + plant(of.text, name, filler, of.without)
		if text = text[:min(len(text), int(cut))]; int(cut) > len(before) {
			text += of.end
		}
		text += "\n" + after
		clean := RedactText(text)
		if hasSecret(clean) || !strings.HasPrefix(clean, before[:min(len(before), int(cut))]) || !strings.HasSuffix(clean, "\n"+after) {
			t.Errorf("%q\nbecomes %q", text, clean)
		}
	})
}

// Arguments are those of a process, whose command line may be cut.
func FuzzRedactArguments(f *testing.F) {
	forms := []struct{ args, without string }{
		{"--NAME|VALUE", ""},
		{"-NAME=VALUE", ""},
		{"NAME=VALUE", ""},
		{"--env=NAME=VALUE", `\"',;}]`},
		{"--env|NAME=VALUE and VALUE", ""},
		{"-H|Authorization: Bearer VALUE", ""},
		{"-H|x-vault-token:VALUE", ""},
		{"Authorization:|Bearer|VALUE", ""},
		{"--user|web:VALUE", ""},
		{"https://web:VALUE@db/shop", `/`},
		{`{"NAME":"VALUE and VALUE","name":"web"}`, `\"`},
		{"-c|exec mysql --NAME=VALUE -h db\nls", `\"'`},
		{"-c|mysql --NAME 'VALUE and VALUE'", `\"'`},
	}
	for i := range forms {
		f.Add("sh -x", uint8(i), uint8(i), `a,b"c\d'e;f`, "-v x", uint16(maxCmdline))
		f.Add("sh -x", uint8(3*i), uint8(i), "12", "", uint16(16+i))
	}
	f.Fuzz(func(t *testing.T, before string, name, form uint8, filler, after string, cut uint16) {
		all := strings.Fields(before)
		clean := Redact(all)
		if again := Redact(clean); !slices.Equal(clean, again) {
			t.Errorf("redacted again\n%q becomes\n%q", clean, again)
		}
		if !harmless(before) || !harmless(after) {
			return
		}
		if !slices.Equal(clean, all) {
			t.Errorf("%q has no secret and becomes %q", all, clean)
		}
		of := forms[int(form)%len(forms)]
		planted := strings.Split(of.args, "|")
		for i := range planted {
			planted[i] = plant(planted[i], name, filler, of.without)
		}
		if clean = Redact(slices.Concat(all, planted, []string{after})); hasSecret(strings.Join(clean, " ")) || clean[len(clean)-1] != after {
			t.Errorf("%q before %q becomes %q", planted, after, clean)
		}
		text := strings.Join(append(all, planted...), "\x00")
		text = text[:min(len(text), int(cut))]
		text = strings.Repeat("x", max(0, maxCmdline+1-len(text))) + "\x00" + text
		if line := parseCmdline([]byte(text[:maxCmdline+2])); hasSecret(line) {
			t.Errorf("%q becomes %q", text, line)
		}
	})
}
